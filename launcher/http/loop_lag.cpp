#include "launcher/http/loop_lag.hpp"

#include <utility>

#include <boost/asio/steady_timer.hpp>

namespace sgd::http {

struct LoopLag::Ticking : std::enable_shared_from_this<Ticking> {
  Ticking(boost::asio::io_context& io, std::function<void(double)> report, Duration each)
      : timer(io), on_lag(std::move(report)), interval(each) {}

  void wait() {
    timer.expires_after(interval);
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error || self->is_over) return;
      self->on_lag(to_seconds(boost::asio::steady_timer::clock_type::now() - self->timer.expiry()));
      self->wait();
    });
  }

  boost::asio::steady_timer timer;
  std::function<void(double)> on_lag;
  Duration interval;
  bool is_over = false;
};

LoopLag::LoopLag(boost::asio::io_context& io, std::function<void(double lag_s)> on_lag, Duration interval)
    : ticking_(std::make_shared<Ticking>(io, std::move(on_lag), interval)) {
  ticking_->wait();
}

LoopLag::~LoopLag() {
  ticking_->is_over = true;
  ticking_->timer.cancel();
}

}  // namespace sgd::http
