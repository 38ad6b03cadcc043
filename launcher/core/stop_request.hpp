#pragma once
// What a stop request makes of a run: its final state, exit code and words.

#include <string>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/core/coordinator_io.hpp"

namespace sgd::core {

/// As a client has written it. An error: a value is of a wrong type.
[[nodiscard]] Result<StopRequest> stop_request_of(const nlohmann::json& request);
[[nodiscard]] std::string state_of(const StopRequest& request);
[[nodiscard]] int exit_code_of(const StopRequest& request);
[[nodiscard]] std::string words(const StopRequest& request);

}  // namespace sgd::core
