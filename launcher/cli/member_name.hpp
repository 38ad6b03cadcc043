#pragma once
// What this machine and this person are called in a cluster, if nobody says otherwise.

#include <string>

namespace sgd::cli {

/// The host's name; letters that a name may not have become "-".
[[nodiscard]] std::string host_name();
/// The calling user's, in the same form.
[[nodiscard]] std::string user_name();

}  // namespace sgd::cli
