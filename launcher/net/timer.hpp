#pragma once
// One wait of an event loop, which its owner may give up at any moment.

#include <functional>
#include <memory>
#include <utility>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/time.hpp"

namespace sgd::net {

/// Asio cannot take back the handler of a time that has come: it waits for its turn already. Here nothing is done
/// behind cancel(), behind a newer wait, or when the timer is gone, also then.
class Timer {
 public:
  explicit Timer(boost::asio::io_context& io) : timer_(io) {}
  explicit Timer(const boost::asio::any_io_executor& executor) : timer_(executor) {}

  void after(Duration wait, std::function<void()> then) {
    timer_.expires_after(wait);
    begin(std::move(then));
  }
  void at(TimePoint time, std::function<void()> then) {
    timer_.expires_at(time);
    begin(std::move(then));
  }
  void cancel() {
    wait_.reset();
    timer_.cancel();
  }

 private:
  void begin(std::function<void()> then) {
    wait_ = std::make_shared<char>();
    timer_.async_wait([wait = std::weak_ptr(wait_), then = std::move(then)](const boost::system::error_code& error) {
      if (!error && !wait.expired()) then();
    });
  }

  boost::asio::steady_timer timer_;
  std::shared_ptr<char> wait_;  ///< The newest one, until it is given up.
};

}  // namespace sgd::net
