#pragma once
// An agent's journal as text: its header, the state where it begins, and each event as a line of JSON, with the message
// of a protocol in the protocol's own words on a second line. Pure; files are agent_journal.hpp's.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "launcher/agent/agent_shell_state.hpp"
#include "launcher/core/agent.hpp"
#include "launcher/core/journal_filter.hpp"

namespace sgd::agent {

struct JournalHeader {
  std::string boot_id;      ///< Of the system: after a reboot nothing of it is left.
  std::string program;      ///< Version: another one may decide otherwise about the same events.
  std::string runtime_dir;  ///< With the sockets of ranks and keepers.
  NodeId node;
  std::size_t rows = 0;  ///< Of the state that follows.
};
/// Where its events begin.
struct JournalStart {
  core::SavedAgent machine;  ///< With a secret, from which tokens come: the journal is for its owner's eyes.
  AgentShellState shell_state;
};

[[nodiscard]] std::string encode(const JournalHeader& header);
[[nodiscard]] Result<JournalHeader> decode_header(std::string_view text);
[[nodiscard]] std::string encode(const storage::StateRow& row);
[[nodiscard]] Result<storage::StateRow> decode_row(std::string_view text);
[[nodiscard]] Result<JournalStart> decode_start(std::vector<storage::StateRow> rows);
/// Of an event that was held back until another one was written (JournalFilter).
inline constexpr std::int64_t kNotChecked = -1;
/// `told`: facts told when the machine had taken it, so that a replay that goes astray is found out; or kNotChecked.
[[nodiscard]] std::string encode(const core::TimedEvent& event, std::int64_t told);

struct JournalRecord {
  core::TimedEvent event;
  std::int64_t told = 0;
};
[[nodiscard]] Result<JournalRecord> decode_record(std::string_view text);

}  // namespace sgd::agent
