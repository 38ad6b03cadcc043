#pragma once
// An agent's journal as text: its header, and each event as a line of JSON, with the message of a protocol in
// the protocol's own words on a second line. Pure; files are agent_journal.hpp's.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "launcher/core/journal_sieve.hpp"
#include "launcher/core/secrets.hpp"

namespace sgd::agent {

/// Where a machine began whose events follow.
struct JournalHeader {
  std::string boot_id;      ///< Of the system: after a reboot nothing of it is left.
  std::string program;      ///< Version: another one may decide otherwise about the same events.
  std::string runtime_dir;  ///< With the sockets of ranks and keepers.
  core::AgentFacts facts;
  core::SecretKey token_key{};  ///< A secret: the journal is for its owner's eyes.
  std::uint64_t tokens = 0;     ///< Drawn of it before.
  std::int64_t told = 0;        ///< Facts of the incarnation before.
  std::uint64_t keepers = 0;    ///< Started by the incarnation before.
};

[[nodiscard]] std::string encode(const JournalHeader& header);
[[nodiscard]] Result<JournalHeader> decode_header(std::string_view text);
/// Of an event that was held back until another one was written (JournalSieve).
inline constexpr std::int64_t kNotChecked = -1;
/// `told`: facts told when the machine had taken it, so that a replay that goes astray is found out; or kNotChecked.
[[nodiscard]] std::string encode(const core::TimedEvent& event, std::int64_t told);

struct JournalRecord {
  core::TimedEvent event;
  std::int64_t told = 0;
};
[[nodiscard]] Result<JournalRecord> decode_record(std::string_view text);

}  // namespace sgd::agent
