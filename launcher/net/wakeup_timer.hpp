#pragma once
// The event loop's side of a pure machine's `next_wakeup()`: one timer, set anew only when the time has changed.

#include <functional>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "common/base/time.hpp"
#include "launcher/net/timer.hpp"

namespace sgd::net {

class WakeupTimer {
 public:
  /// `on_wakeup` gives the machine its tick, and arms anew.
  WakeupTimer(boost::asio::io_context& io, std::function<void()> on_wakeup)
      : timer_(io), on_wakeup_(std::move(on_wakeup)) {}

  /// Nothing: never.
  void arm(const std::optional<TimePoint>& next) {
    if (next == armed_) return;
    armed_ = next;
    if (!next) return timer_.cancel();
    timer_.at(*next, [this] {
      armed_.reset();
      on_wakeup_();
    });
  }
  void cancel() { arm(std::nullopt); }

 private:
  Timer timer_;
  std::function<void()> on_wakeup_;
  std::optional<TimePoint> armed_;
};

}  // namespace sgd::net
