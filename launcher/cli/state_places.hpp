#pragma once
// Where the programs of a cluster keep what outlives them, when nobody says otherwise.

#include <string>

namespace sgd::cli {

/// For the lock of a folder that a daemon or another verb may be using, milliseconds.
inline constexpr int kStateLockWaitMs = 5000;

/// $STATE_DIRECTORY (systemd), else /var/lib/sgd-launch/coordinator for root, else
/// $XDG_STATE_HOME/sgd-launch/coordinator (~/.local/state by default).
[[nodiscard]] std::string coordinator_state_dir();
/// The same whatever systemd has given to this process, which may be another program's folder.
[[nodiscard]] std::string usual_coordinator_state_dir();
/// The same for an agent.
[[nodiscard]] std::string agent_state_dir();
/// $XDG_STATE_HOME/sgd-launch (~/.local/state by default); empty where neither is an absolute path.
[[nodiscard]] std::string user_state_dir();
/// Certificate and key of the calling user: $XDG_CONFIG_HOME/sgd-launch/identity (~/.config by default).
[[nodiscard]] std::string user_identity_dir();

}  // namespace sgd::cli
