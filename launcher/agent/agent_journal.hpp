#pragma once
// What an agent was told since it last had nothing, in a file: the next agent with the same state folder takes
// the events anew and so knows what runs here (core/journal_sieve.hpp).
//
//   file:  "sgd-agent-journal 2\n"  header  event  event ...     each: u32 length, u32 CRC-32C (little end first), text
//
// An event is written before anything is done about it. Nothing is flushed to the disk: only the process may
// die; a machine that goes down takes with it what the journal speaks of, and the boot id says so. A record
// that is cut short or damaged ends the journal: its process had no time to do anything about it.

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "common/base/result.hpp"
#include "launcher/agent/journal_codec.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::agent {

/// A journal that an earlier life has left.
class PastJournal {
 public:
  /// Nothing: there is none. Error: it is not one of this format.
  [[nodiscard]] static Result<std::optional<PastJournal>> open(const std::string& path);

  [[nodiscard]] const JournalHeader& header() const { return header_; }
  /// The next event; nothing at the end. Error: it is whole, and not understood.
  [[nodiscard]] Result<std::optional<JournalRecord>> next();
  /// next() begins with the first event again.
  void rewind() { at_ = first_at_; }
  /// Bytes up to the end of what next() has given out.
  [[nodiscard]] std::size_t read_bytes() const { return at_; }

 private:
  [[nodiscard]] std::optional<std::string_view> next_text();

  std::string bytes_;
  std::size_t at_ = 0;
  std::size_t first_at_ = 0;
  JournalHeader header_;
};

class AgentJournal {
 public:
  /// Beyond it, nobody takes over from this agent until it has nothing again.
  static constexpr std::size_t kBytesMax = 256 << 20;
  /// With as much behind it, a journal of an agent that has nothing is begun anew.
  static constexpr std::size_t kWorthBeginningAnew = 16 << 10;

  explicit AgentJournal(std::string path) : path_(std::move(path)) {}

  /// In place of what is there.
  [[nodiscard]] Status begin(const JournalHeader& header);
  /// After the first `bytes` of what is there.
  [[nodiscard]] Status go_on(std::size_t bytes);
  /// Error: from here on it is off, and the file is gone.
  [[nodiscard]] Status append(std::span<const core::TimedEvent> events, std::int64_t told);
  void remove();
  [[nodiscard]] bool is_on() const { return static_cast<bool>(file_); }
  [[nodiscard]] bool is_worth_beginning_anew() const { return !is_on() || bytes_ > kWorthBeginningAnew; }

 private:
  std::string path_;
  process::UniqueFd file_;
  std::size_t bytes_ = 0;
};

/// Of the running system; empty when it cannot be told.
[[nodiscard]] std::string boot_id();

}  // namespace sgd::agent
