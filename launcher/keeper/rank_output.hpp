#pragma once
// One rank's output, from its pipe to its log file and to the console.
//   pipe --read--> log file: every byte, in order; a slow disk holds the writer back
//            '---> console: whole lines, or dropped with a count when the console is stalled
//            '---> the last lines, for the message about a failure
// Holds no more than one unfinished line. Only a disk that refuses bytes loses any, counted.

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "launcher/keeper/agent_link.hpp"
#include "launcher/keeper/console_lines.hpp"
#include "launcher/keeper/tail.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::keeper {

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
  /// Makes the pipe and opens `log_path` for appending, with its folders. Empty `log_path`: no file.
  [[nodiscard]] static Result<RankOutput> open(Generation generation, Rank rank, const std::string& log_path);

  /// -1 once every writer is gone.
  [[nodiscard]] int pipe_fd() const { return read_end_.get(); }
  [[nodiscard]] process::UniqueFd take_write_end() { return std::move(write_end_); }
  /// Bytes in the pipe now.
  [[nodiscard]] std::size_t waiting() const;
  /// One read of at most `bytes_max`; returns how many bytes came, 0 when the pipe is empty or has no writer
  /// any more. Without `agent` only the file is written.
  std::size_t read_once(ReadBuffer& buffer, AgentLink* agent, std::size_t bytes_max);
  /// Gives out the unfinished line and closes the pipe and the file.
  void finish(AgentLink* agent);
  /// Tells the agent what the stalled console has missed, if anything.
  void report_console_drops(AgentLink& agent);
  [[nodiscard]] std::vector<std::string> tail() const { return tail_.lines(); }

 private:
  struct Dropped {
    std::int64_t lines = 0;
    std::int64_t bytes = 0;
  };

  void write_file(std::string_view bytes, AgentLink* agent);
  void write_console(std::string_view bytes, AgentLink* agent);
  void console(std::span<const ConsolePiece> pieces, bool finish_line, AgentLink* agent);
  void report(Dropped& dropped, const std::string& reason, AgentLink& agent) const;

  Generation generation_ = 0;
  Rank rank_ = 0;
  std::string log_path_;
  process::UniqueFd read_end_;
  process::UniqueFd write_end_;
  process::UniqueFd file_;
  std::string rest_;  ///< The unfinished line, at most kConsoleLineBytesMax bytes.
  ConsoleCut cut_;    ///< Reused by every read.
  Tail tail_;
  Dropped console_dropped_;
  Dropped file_dropped_;
  std::string file_error_;  ///< Not empty while the file refuses bytes.
};

}  // namespace sgd::keeper
