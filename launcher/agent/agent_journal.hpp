#pragma once
// What an agent knew at some time, and what it was told since, in a file: the next agent with the same state folder
// takes the events anew and so knows what runs here (core/journal_filter.hpp). When the events are longer than they
// need be, a new file begins with the state of now, and takes the old one's name.
//
//   file:  "sgd-agent-journal 3\n"  header  state ...  event  event ...
//          each: u32 length, u32 CRC-32C (little end first), text
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
  /// What its agent knew when it began.
  [[nodiscard]] const JournalStart& start() const { return start_; }
  /// The next event; nothing at the end. Error: it is whole, and not understood.
  [[nodiscard]] Result<std::optional<JournalRecord>> next();
  /// next() begins with the first event again.
  void rewind() { at_ = first_at_; }
  /// Bytes up to the end of what next() has given out.
  [[nodiscard]] std::size_t read_bytes() const { return at_; }

 private:
  [[nodiscard]] std::optional<std::string_view> next_text();
  [[nodiscard]] Status read_start();

  std::string bytes_;
  std::size_t at_ = 0;
  std::size_t first_at_ = 0;
  JournalHeader header_;
  JournalStart start_;
};

class AgentJournal {
 public:
  /// A state that is as long cannot be kept, nor can what comes after one that could not be written: nobody takes over
  /// from this agent then.
  static constexpr std::size_t kBytesMax = 256 << 20;
  /// Longer than this, and than twice its state, it is begun anew: that is what a takeover has to read.
  static constexpr std::size_t kRewriteBytes = 16 << 20;
  /// With as much behind it, a journal of an agent that has nothing is begun anew.
  static constexpr std::size_t kWorthBeginningAnew = 16 << 10;

  explicit AgentJournal(std::string path, std::size_t rewrite_bytes = kRewriteBytes)
      : path_(std::move(path)), rewrite_bytes_(rewrite_bytes), long_bytes_(rewrite_bytes) {}

  /// In place of what is there, in one step. Error: what was there stays, and is gone on with.
  [[nodiscard]] Status begin(JournalHeader header, const std::vector<storage::StateRow>& state);
  /// After the first `bytes` of what is there.
  [[nodiscard]] Status go_on(std::size_t bytes);
  /// Error: from here on it is off, and the file is gone.
  [[nodiscard]] Status append(std::span<const core::TimedEvent> events, std::int64_t told);
  void remove();
  [[nodiscard]] bool is_on() const { return static_cast<bool>(file_); }
  [[nodiscard]] bool is_worth_beginning_anew() const { return !is_on() || bytes_ > kWorthBeginningAnew; }
  [[nodiscard]] bool is_long() const { return is_on() && bytes_ > long_bytes_; }

 private:
  std::string path_;
  std::size_t rewrite_bytes_;
  std::size_t long_bytes_;
  process::UniqueFd file_;
  std::size_t bytes_ = 0;
};

/// Of the running system; empty when it cannot be told.
[[nodiscard]] std::string boot_id();

}  // namespace sgd::agent
