#pragma once
// How late the event loop is: a timer that fires each interval, and the time from its due moment to its
// handler. A loop that stands still shows as one large value when it goes on; meanwhile its probes do not
// answer.

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "common/base/time.hpp"

namespace sgd::http {

class LoopLag {
 public:
  static constexpr Duration kInterval = std::chrono::seconds(1);

  /// `on_lag` gets seconds, on the event loop. `io` must outlive this.
  LoopLag(boost::asio::io_context& io, std::function<void(double lag_s)> on_lag, Duration interval = kInterval);
  ~LoopLag();

 private:
  struct Ticking;
  std::shared_ptr<Ticking> ticking_;
};

}  // namespace sgd::http
