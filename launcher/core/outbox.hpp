#pragma once
// An agent's facts on their way to the coordinator, kept until they are acknowledged. Each run has a lane of its own,
// lanes take turns, and no more than a window is under way: neither a run that says much, nor what an outage has left
// to be sent again, holds up another run's facts or fills the link's queue.
//
//   push ──> lane of its run ──its turn, window has room──> numbered, sent ──acknowledged──> gone
//                                            '── new link, or no acknowledgement in time: sent again, from the oldest
//
// A fact gets its number when it is sent first, and keeps it. Of a lane that is full the owner takes no more than it
// must: whoever fills it is not read (agent_command::PauseWorker) until half of it is acknowledged.

#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "common/base/time.hpp"
#include "launcher/core/agent_io.hpp"
#include "launcher/core/only_state.hpp"

namespace sgd::core {

struct OutboxState {
  struct Kept {
    cluster::Fact fact;
    std::size_t bytes = 0;
  };
  struct Lane {
    std::deque<Kept> waiting;      ///< Without a number.
    std::size_t facts = 0;         ///< With those that have one.
    std::size_t bytes = 0;         ///< Of the same.
    std::size_t window_bytes = 0;  ///< Of those that have one.
  };

  Incarnation incarnation_ = 0;
  std::int64_t sequence_ = 0;
  std::map<RunId, Lane> lanes_;  ///< None of them empty.
  std::size_t waiting_ = 0;      ///< In all lanes.
  RunId last_turn_;
  std::deque<Kept> numbered_;  ///< Not acknowledged, oldest first.
  std::size_t sent_ = 0;       ///< Of them, over this link since it was last begun anew.
  std::size_t sent_bytes_ = 0;
  std::size_t window_ = 0;
  bool is_linked_ = false;
  Duration resend_after_{};
  std::optional<TimePoint> resend_at_;  ///< While something is under way.
};

class Outbox : private OutboxState {
 public:
  using State = OutboxState;
  /// Of one run, not acknowledged: what is beyond it comes from those who are not read any more, or is not theirs
  /// (exits, starts), and so bounded by the number of ranks.
  static constexpr std::size_t kRunBytesMax = 4 << 20;
  static constexpr std::size_t kRunFactsMax = 16384;
  /// Under way: of all runs, and of one.
  static constexpr std::size_t kWindowBytes = 4 << 20;
  static constexpr std::size_t kRunWindowBytes = 1 << 20;
  /// The window after a silence: it doubles with each acknowledgement.
  static constexpr std::size_t kProbeBytes = 64 << 10;
  /// What is not acknowledged for so long is sent again; then after twice the time, up to kResendMax.
  static constexpr Duration kResendAfter = std::chrono::seconds(2);
  static constexpr Duration kResendMax = std::chrono::seconds(30);

  /// `told`: facts of this incarnation that were told and acknowledged before.
  Outbox(Incarnation incarnation, std::int64_t told) {
    incarnation_ = incarnation;
    sequence_ = told;
    window_ = kWindowBytes;
    resend_after_ = kResendAfter;
  }
  Outbox() = default;
  explicit Outbox(State state) : State(std::move(state)) {}
  [[nodiscard]] const State& state() const { return *this; }

  void push(cluster::Fact fact);
  /// There is a link: all that is not acknowledged is sent over it, oldest first.
  void on_connected();
  void on_disconnected();
  /// The coordinator has all facts of this incarnation up to `sequence`.
  void acknowledge(TimePoint now, std::int64_t sequence);
  /// Appends what the window has room for.
  void send(TimePoint now, AgentCommands& out);
  /// Returns whether something is to be sent again.
  [[nodiscard]] bool on_tick(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const { return resend_at_; }

  [[nodiscard]] bool is_full(const RunId& run) const;
  /// No more than half of what a run may have.
  [[nodiscard]] bool has_room(const RunId& run) const;
  [[nodiscard]] bool empty() const { return lanes_.empty(); }
  /// A fact of this generation that is not acknowledged.
  [[nodiscard]] bool has(const RunId& run, Generation generation, GenerationUid uid) const;
  /// Facts that have a number.
  [[nodiscard]] std::int64_t last_sequence() const { return sequence_; }
  [[nodiscard]] std::int64_t acknowledged() const { return sequence_ - static_cast<std::int64_t>(numbered_.size()); }

 private:
  [[nodiscard]] bool number_next();
  void begin_again(std::size_t window);
};
static_assert(has_only_state<Outbox>());

}  // namespace sgd::core
