#pragma once
// What this machine and this person are called in a cluster, if nobody says otherwise; and what a person has done to a
// coordinator's state folder by a verb on its machine.

#include <string>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::cli {

/// The host's name; letters that a name may not have become "-".
[[nodiscard]] std::string host_name();
/// The calling user's, in the same form.
[[nodiscard]] std::string user_name();

/// A line in the `audit.jsonl` of `state_dir`: the calling user has done `action`. Before it is done, so that nothing
/// is done unseen.
[[nodiscard]] Status note_action(const std::string& state_dir, const std::string& action,
                                 const nlohmann::ordered_json& about);

}  // namespace sgd::cli
