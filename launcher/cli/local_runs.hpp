#pragma once
// Runs of this user on this machine that no coordinator knows: each has a launcher that answers on its socket.

#include "common/json/nlohmann.hpp"

namespace sgd::cli {

/// The status of each that lives, as a list of rows of `ps`, in the order of their names.
[[nodiscard]] nlohmann::ordered_json local_runs();

}  // namespace sgd::cli
