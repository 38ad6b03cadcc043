#pragma once
// Decides whether output may go to the console now. Pure: the time is an argument.
//
//   open --window full--> holding --no ack for kPatience--> stalled --ack--> open
//                            '------------ ack with room ----------------> open
//
// open: lines are sent. holding: pipes are not read, which holds the writers back. stalled:
// pipes are read, files go on, and console lines are dropped and counted by the caller.

#include <cstdint>
#include <optional>

#include "common/base/time.hpp"

namespace sgd::keeper {

class ConsoleWindow {
 public:
  enum class State {
    kOpen,     ///< There is room for one more read.
    kHolding,  ///< Full, and the console still moves: wait for it.
    kStalled,  ///< Full, and the console has not moved for kPatience: drop.
  };
  static constexpr Duration kPatience = std::chrono::seconds(1);

  /// `room` is what one read of a pipe can put into the window of `bytes_max`.
  ConsoleWindow(std::int64_t bytes_max, std::int64_t room, Duration patience = kPatience)
      : bytes_max_(bytes_max), room_(room), patience_(patience) {}

  void sent(std::int64_t bytes) { unacknowledged_ += bytes; }
  void acknowledged(TimePoint now, std::int64_t bytes);
  /// Brings the state up to `now`.
  State update(TimePoint now);
  [[nodiscard]] State state() const { return state_; }
  /// A rank that has ended may overdraw the window once, so that its exit is not held back by a slow console.
  [[nodiscard]] bool may_overdraw() const {
    return state_ == State::kStalled || unacknowledged_ + room_ <= 2 * bytes_max_;
  }
  [[nodiscard]] std::int64_t unacknowledged() const { return unacknowledged_; }
  /// When update() will change the state without an acknowledgement.
  [[nodiscard]] std::optional<TimePoint> deadline() const;

 private:
  std::int64_t bytes_max_;
  std::int64_t room_;
  Duration patience_;
  std::int64_t unacknowledged_ = 0;
  State state_ = State::kOpen;
  TimePoint moved_at_{};  ///< Last acknowledgement, or when it became full, whichever is later.
};

}  // namespace sgd::keeper
