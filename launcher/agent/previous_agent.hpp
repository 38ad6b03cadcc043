#pragma once
// What an agent finds in its state folder of the one before: a journal that it can go on with, or the remains of
// a life that it cannot, which are cleared, so that no rank of it trains beside those of the next.

#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "launcher/agent/agent_journal.hpp"
#include "launcher/process/runtime_dir.hpp"

namespace sgd::agent {

struct PreviousAgent {
  /// Of an agent that had something; proven: a machine that takes its events stands where that one stood.
  std::optional<PastJournal> journal;
  std::optional<process::RuntimeDir> runtime;  ///< With the journal: its sockets' folder.
  std::string why_not;                         ///< There was something, and it cannot be gone on with.
};

/// `node`: the name that this agent has.
[[nodiscard]] PreviousAgent find_previous_agent(const std::string& journal_path, const std::string& node);

/// "SGD_KEEPER=..." of everything that agents with this state folder start, up to the keeper's number.
[[nodiscard]] Result<std::string> keeper_mark(const std::string& state_dir);

}  // namespace sgd::agent
