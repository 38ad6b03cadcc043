#pragma once
// The event loop's side of a pure machine's `next_wakeup()`: one timer, set anew only when the time has changed.

#include <functional>
#include <optional>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/time.hpp"

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
    timer_.cancel();
    if (!next) return;
    timer_.expires_at(*next);
    timer_.async_wait([this](const boost::system::error_code& error) {
      if (error) return;
      armed_.reset();
      on_wakeup_();
    });
  }
  void cancel() { arm(std::nullopt); }

 private:
  boost::asio::steady_timer timer_;
  std::function<void()> on_wakeup_;
  std::optional<TimePoint> armed_;
};

}  // namespace sgd::net
