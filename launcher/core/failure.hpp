#pragma once
// What went wrong, in one value, and which of several failures is the cause.
//
// A worker whose collective fails exits with 75: secondary, a consequence of somebody else's
// failure and never the cause. A command's rank is secondary by the words of its error (peer_loss.hpp); then what
// ranks that have not ended yet have said counts, too. The cause is the first primary failure to arrive; within
// kSignalOutranks a signal outranks an exit code, because a killed rank makes its peers throw (but a process that ends
// itself by one does not outrank an error that another one has told), and of two told errors the earlier one counts. A
// GPU that has failed outranks both: no peer's end breaks one.
// Exits that the agent caused itself are not failures at all and never come here.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/time.hpp"
#include "common/json/nlohmann.hpp"
#include "common/messages/rank_error.hpp"
#include "launcher/core/only_state.hpp"

namespace sgd::core {

enum class FailureKind {
  kExitCode,       ///< A process ended with a code that is not 0, or could not be started.
  kSignal,         ///< A process was ended by a signal.
  kHeartbeatLost,  ///< A worker is alive but silent.
  kNodeLost,       ///< A node's link was silent for too long, or closed and missed by its peers.
  kStalled,        ///< Steps stopped although heartbeats go on.
  kPeerLost,       ///< A collective failed under a rank: a consequence.
  kRaised,         ///< A rank has said why it fails, and has not ended yet.
  kNodeRefused,    ///< A node could not even begin with the run: its disk is full, or an account is missing there.
};

/// "exit_code", "signal", ...: the words of events.jsonl.
[[nodiscard]] const char* name(FailureKind kind);

struct Failure {
  FailureKind kind = FailureKind::kExitCode;
  Rank rank = -1;       ///< -1: no single rank (a node, the keeper, the fork server).
  std::string subject;  ///< "rank 1", "fork server", "keeper".
  NodeId node;
  int pid = 0;
  int exit_code = -1;
  int signal = 0;
  bool core_dumped = false;
  bool is_final = false;          ///< Never retried: an error of the user's model, data or configuration.
  std::string message;            ///< What the process said, or why it could not start; may be empty.
  std::vector<std::string> tail;  ///< Its last lines of output.
  RankError error;                ///< What it said itself; may be empty.
  std::string gpu;                ///< Of its own, that has failed under it; empty: none is named.
  bool may_follow = false;        ///< An exit code that may be a consequence of a signal that is not known yet.
  bool follows_peer = false;      ///< Of a command: by its words it has lost another rank.
  bool was_waiting = false;       ///< With kStalled: it waited for another rank.
  double notice_s = 0;            ///< From its end, or its last sign of life, until it was noticed.
  TimePoint at;

  /// Another rank was gone under it.
  [[nodiscard]] bool misses_peer() const { return kind == FailureKind::kPeerLost || follows_peer; }
  /// Of its node, and nothing that the run has done.
  [[nodiscard]] bool is_of_node() const { return kind == FailureKind::kNodeLost || kind == FailureKind::kNodeRefused; }
  /// A consequence of another failure that is not known yet.
  [[nodiscard]] bool is_secondary() const { return misses_peer() || (kind == FailureKind::kStalled && was_waiting); }
};

/// "signal 9 (SIGKILL)" or "exit code 1": what happened, without whom.
[[nodiscard]] std::string what(const Failure& failure);

/// "signal 9 (SIGKILL), rank 1" or "exit code 1, rank 0: label 200 of sample 17 is outside 0..9".
[[nodiscard]] std::string words(const Failure& failure);

/// "9 (SIGKILL)".
[[nodiscard]] std::string signal_words(int signal);

struct CauseState {
  std::optional<Failure> cause_;
};

/// Collects the failures of one generation and names the cause.
class CauseFinder : private CauseState {
 public:
  using State = CauseState;
  static constexpr Duration kSignalOutranks = std::chrono::milliseconds(200);
  static constexpr Duration kPrimaryWait = std::chrono::seconds(1);

  CauseFinder() = default;
  explicit CauseFinder(State state) : State(std::move(state)) {}
  [[nodiscard]] const State& state() const { return *this; }

  void add(const Failure& failure);
  /// The cause so far: the primary one, or the first secondary one if there is nothing else.
  [[nodiscard]] const std::optional<Failure>& cause() const { return cause_; }
  /// True once it is right to act: a primary failure is known, or kPrimaryWait has passed.
  [[nodiscard]] bool decided(TimePoint now) const;
  /// When decided() may change by time alone.
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;
  void reset();

 private:
  [[nodiscard]] Duration patience() const;
  [[nodiscard]] bool is_outranked_by(const Failure& failure) const;
};
static_assert(has_only_state<CauseFinder>());

}  // namespace sgd::core
