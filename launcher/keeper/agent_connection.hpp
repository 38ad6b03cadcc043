#pragma once
// The keeper's end of its socket to the agent: frames in, control messages and console output
// out. Never blocks. Control messages are queued until they are written, output too, but only
// as far as the console window allows; a queue over its limit means that the agent is lost.
// Frames leave in the order in which they were given.
//
// Where agents may come back, control messages are kept until one has acknowledged them, and the next one is
// sent what it lacks. So is console output, until somebody has taken it, as much as UntakenOutput keeps; an agent may
// have died with it, or have passed it on: whoever shows it knows by OutputHead::end what was shown. What the log file
// lacks is counted until somebody is there.

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/messages/frame.hpp"
#include "common/messages/keeper.hpp"
#include "common/messages/resend_queue.hpp"
#include "launcher/keeper/console_lines.hpp"
#include "launcher/keeper/console_window.hpp"
#include "launcher/keeper/untaken_output.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::keeper {

/// What one read of a pipe takes at most.
inline constexpr std::size_t kReadBytes = 256 << 10;
/// What one read can put into the console window: itself, a held-back line, the marks of split lines.
inline constexpr std::size_t kConsoleRoom = kReadBytes + kConsoleLineBytesMax + 256;
/// Bytes waiting for the agent's socket: twice the window (ended ranks may overdraw), and room for control
/// messages.
inline constexpr std::size_t kAgentQueueBytesMax = 2 * kOutputWindowBytes + (8 << 20);
/// Counts of lost lines that wait for an agent, each of a rank and a file; more are counted with the last one.
inline constexpr std::size_t kUntoldMax = 4096;
/// Control messages kept for an agent that is away: thousands of exits with their last lines.
inline constexpr std::size_t kKeptBytesMax = 64 << 20;

class AgentConnection {
 public:
  /// To the only agent that there will be.
  explicit AgentConnection(process::UniqueFd socket, Duration console_patience = ConsoleWindow::kPatience)
      : socket_(std::move(socket)),
        window_(kOutputWindowBytes, static_cast<std::int64_t>(kConsoleRoom), console_patience) {}
  /// To agents that come, and come back: none yet. `keeper`: by which its output is known from that of others.
  explicit AgentConnection(std::uint64_t keeper) : keeps_(true), keeper_(keeper) {}

  /// An agent has connected; it says Attach next.
  void attach(process::UniqueFd socket);
  /// Its Attach is here: answers with `started` and `descriptors`, then with what it lacks. Error: it is not ours.
  [[nodiscard]] Status resume(const Attach& attach, Started started, std::span<const int> descriptors);
  /// It is gone.
  void disconnect();
  [[nodiscard]] bool is_attached() const { return static_cast<bool>(socket_); }
  /// Tells it how much of what it has said is here, if that is news.
  void acknowledge();
  [[nodiscard]] bool has_unacknowledged() const { return !kept_.kept().empty(); }
  [[nodiscard]] bool keeps_too_much() const { return kept_.bytes() > kKeptBytesMax; }

  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] bool wants_write() const { return !queue_.empty(); }
  /// The agent is gone, or has not read for so long that the queue is over its limit.
  [[nodiscard]] bool lost() const { return lost_; }
  [[nodiscard]] ConsoleWindow& window() { return window_; }
  [[nodiscard]] const ConsoleWindow& window() const { return window_; }

  /// The first message, with its descriptors; makes the socket non-blocking.
  [[nodiscard]] Status send_started(const Started& started, std::span<const int> descriptors);
  void send(const FromKeeper& message);
  /// Sends the pieces of one stream of a rank as one chunk, or keeps them for the next agent. Adds a newline when
  /// `finish_line`. Returns the console bytes of it: all, or none when too much waits for an agent.
  std::int64_t send_output(const OutputHead& head, std::span<const ConsolePiece> pieces, bool finish_line);
  /// So many more console bytes are.
  void output_taken(TimePoint now, std::int64_t bytes);
  /// Writes what the socket takes.
  void flush();
  /// Messages that have arrived; an error when the agent is gone or sends what it must not.
  [[nodiscard]] Status receive(std::vector<ToKeeper>& out);

 private:
  /// Writes parts now when nothing waits, and queues what did not go.
  void write_parts(std::span<const std::string_view> parts);
  void enqueue(std::span<const std::string_view> parts, std::size_t skip);
  [[nodiscard]] Status take(const Frame& frame, std::vector<ToKeeper>& out);
  void keep_count(const OutputDropped& dropped);
  void resend_output();
  [[nodiscard]] bool is_alone() const { return keeps_ && !is_resumed_; }

  process::UniqueFd socket_;
  FrameReader reader_;
  ConsoleWindow window_{kOutputWindowBytes, static_cast<std::int64_t>(kConsoleRoom)};
  std::deque<std::string> queue_;
  std::size_t queue_begin_ = 0;  ///< Bytes of the first entry that are written.
  std::size_t queue_bytes_ = 0;
  std::size_t queue_bytes_max_ = kAgentQueueBytesMax;  ///< More for one that is sent what it lacks.
  bool lost_ = false;
  bool keeps_ = false;       ///< Agents come back.
  bool is_resumed_ = false;  ///< The one that is attached has got what it lacked.
  ResendQueue kept_;
  std::uint64_t keeper_ = 0;
  std::uint64_t output_end_ = 0;  ///< Console bytes of all chunks, open lines apart.
  UntakenOutput untaken_;
  std::map<std::pair<Rank, std::string>, OutputDropped> untold_;  ///< By rank and reason, while nobody is there.
  std::uint64_t flushed_bytes_ = 0;                               ///< Of the queue, to this agent.
  /// Counts that this agent has not been sent whole, by the bytes of the queue that end with each.
  std::deque<std::pair<std::uint64_t, OutputDropped>> unwritten_;
  std::int64_t received_ = 0;  ///< Counted messages of all agents.
  std::int64_t told_received_ = 0;
};

}  // namespace sgd::keeper
