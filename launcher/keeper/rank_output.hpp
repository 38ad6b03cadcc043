#pragma once
// One rank's output, from its two pipes to files and to the console.
//   pipe --read--> log file: every byte of both streams as it comes; a slow disk holds the writer back
//            '---> files of the stream alone, if there are any
//            '---> console: whole lines, or dropped with a count when the console is stalled;
//            |              lines that are being written, once in a while (open_line.hpp)
//            '---> the last lines, and the last traceback, for the message about a failure
// A terminal in place of the pipes is one stream: stdout.
// Holds no more than one unfinished line of each stream. Only a disk that refuses bytes loses any, counted.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "launcher/keeper/agent_connection.hpp"
#include "launcher/keeper/console_lines.hpp"
#include "launcher/keeper/log_file.hpp"
#include "launcher/keeper/open_line.hpp"
#include "launcher/keeper/tail.hpp"
#include "launcher/keeper/traceback.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::keeper {

inline constexpr std::array kStreams = {Stream::kOut, Stream::kErr};

/// Room to read into, shared by all ranks: one unfinished line and one read.
class ReadBuffer {
 public:
  ReadBuffer() : bytes_(kConsoleLineBytesMax + kReadBytes) {}
  [[nodiscard]] char* read_begin() { return bytes_.data() + kConsoleLineBytesMax; }

 private:
  std::vector<char> bytes_;
};

class RankOutput {
 public:
  /// Makes the pipes and opens the files.
  [[nodiscard]] static Result<RankOutput> open(const Spawn& spawn);

  /// -1 once every writer is gone; and for a while where that is a terminal, which may be opened again.
  [[nodiscard]] int readable_fd(TimePoint now, Stream stream) const {
    return unused_until_ && now < *unused_until_ ? -1 : of(stream).read_end.get();
  }
  /// Until when its terminal is not read, since nobody has it open.
  [[nodiscard]] std::optional<TimePoint> unused_until() const { return unused_until_; }
  /// For the rank's stdout and stderr.
  [[nodiscard]] std::vector<process::UniqueFd> take_write_ends();
  /// What its terminal takes of what is typed for it; 0: it has none, or is full.
  std::size_t write_input(std::string_view bytes);
  void resize_terminal();
  /// Bytes in the pipe now; of a terminal, at most so many.
  [[nodiscard]] std::size_t waiting(Stream stream) const;
  /// One read of at most `bytes_max`; returns how many bytes came, 0 when the pipe is empty or has no writer
  /// any more. Without `agent` only files are written.
  std::size_t read_once(Stream stream, TimePoint now, ReadBuffer& buffer, AgentConnection* agent,
                        std::size_t bytes_max);
  /// Shows the console lines that are being written, where that is due.
  void show_open_lines(TimePoint now, AgentConnection& agent);
  [[nodiscard]] std::optional<TimePoint> next_open_line() const;
  /// Gives out the unfinished lines and closes pipes and files.
  void finish(AgentConnection* agent);
  /// Tells the agent what the stalled console has missed, if anything.
  void report_console_drops(AgentConnection& agent);
  [[nodiscard]] std::vector<std::string> tail() const { return tail_.lines(); }
  [[nodiscard]] std::string last_object() const { return tail_.last_object(); }
  /// What its output says of its failure, as far as that is among its last lines.
  [[nodiscard]] RankError traceback() const { return traceback_.error(); }

 private:
  struct StreamOutput {
    process::UniqueFd read_end;
    process::UniqueFd write_end;
    bool is_shown = true;
    LogFile file;  ///< Of this stream alone.
    std::vector<std::string> filters;
    LogFile filtered;               ///< Of all ranks.
    bool is_filtered_open = false;  ///< What was written there last was a part of a line.
    std::string rest;               ///< The unfinished line, at most kConsoleLineBytesMax bytes.
    bool is_split = false;          ///< What comes next goes on with a line whose begin was given out.
    OpenLine open_line;
  };

  [[nodiscard]] StreamOutput& of(Stream stream) { return streams_[static_cast<std::size_t>(stream)]; }
  [[nodiscard]] const StreamOutput& of(Stream stream) const { return streams_[static_cast<std::size_t>(stream)]; }
  [[nodiscard]] OutputHead head(Stream stream) const { return {generation_, rank_, stream, false}; }
  void write_files(StreamOutput& output, std::string_view bytes, AgentConnection* agent);
  void take_lines(Stream stream, std::string_view bytes, AgentConnection* agent);
  void note(Stream stream, const ConsolePiece& piece);
  static void write_filtered(StreamOutput& output, const ConsolePiece& piece, bool goes_on, const std::string& prefix);
  void console(Stream stream, std::span<const ConsolePiece> pieces, bool finish_line, AgentConnection* agent);

  Generation generation_ = 0;
  Rank rank_ = 0;
  std::string line_prefix_;  ///< Of its lines in files of all ranks.
  bool has_terminal_ = false;
  std::optional<TimePoint> unused_until_;
  LogFile log_;
  std::array<StreamOutput, kStreams.size()> streams_;
  std::string frames_;  ///< Reused by every read.
  ConsoleCut cut_;      ///< Reused by every read.
  Tail tail_;
  TracebackWatch traceback_;
  OutputDropped console_dropped_;
};

}  // namespace sgd::keeper
