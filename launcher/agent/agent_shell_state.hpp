#pragma once
// What an agent's shell knows beside its machine and the next life needs: what was said to keepers and ranks, and is
// not known to have arrived, and how much of theirs has been taken. Saved with the machine's state, of the same moment.

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "launcher/core/agent_io.hpp"
#include "launcher/storage/state_codec.hpp"

namespace sgd::agent {

struct KeptKeeper {
  std::uint64_t number = 0;           ///< By which its sockets and its mark are known.
  bool was_started = false;           ///< The machine knows that it is up.
  std::int64_t received = 0;          ///< Counted messages of it.
  std::int64_t sent = 0;              ///< Counted messages to it,
  std::deque<std::string> kept = {};  ///< and the last of them, as text.
};
struct KeptLink {
  RunId run;
  std::string token;
  int peer_pid = 0;
  bool returns = false;
  bool is_paused = false;
  std::int64_t received = 0;          ///< Counted lines of the rank.
  std::int64_t sent = 0;              ///< Counted lines to it,
  std::deque<std::string> kept = {};  ///< and the last of them.
};
struct AgentShellState {
  std::uint64_t keepers_made = 0;
  core::ConnectionId next_link = 1;
  std::map<RunId, KeptKeeper> keepers;
  std::map<core::ConnectionId, KeptLink> links;  ///< That have said hello.
  std::map<RunId, std::string> link_paths;
  std::map<RunId, std::string> remotes;  ///< Run directories of the coordinator.
};

/// A row of the kind "books".
[[nodiscard]] storage::StateRow encode(const AgentShellState& shell_state);
[[nodiscard]] Result<AgentShellState> decode_shell_state(const storage::StateRow& row);

}  // namespace sgd::agent
