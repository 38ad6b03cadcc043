#pragma once
// What a stop request makes of a run: its final state, exit code and words.

#include <string>

#include "launcher/core/coordinator_io.hpp"

namespace sgd::core {

[[nodiscard]] std::string state_of(const StopRequest& request);
[[nodiscard]] int exit_code_of(const StopRequest& request);
[[nodiscard]] std::string words(const StopRequest& request);

}  // namespace sgd::core
