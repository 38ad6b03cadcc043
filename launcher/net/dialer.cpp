#include "launcher/net/dialer.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/connect.hpp>

namespace sgd::net {

namespace asio = boost::asio;
using asio::ip::tcp;

/// With the wait before it. Handlers of an attempt that is over find `dialer` null: on a busy event loop a timer may
/// have fired, and wait for its turn, when what it was to end has ended.
struct Dialer::Attempt : std::enable_shared_from_this<Dialer::Attempt> {
  explicit Attempt(asio::io_context& io, Dialer& owner) : resolver(io), socket(io), dialer(&owner) {}

  tcp::resolver resolver;
  tcp::socket socket;
  Dialer* dialer;

  void give_up() {
    dialer = nullptr;
    boost::system::error_code ignored;
    resolver.cancel();
    socket.close(ignored);
  }
  /// If it is not over by then.
  template <class Then>
  void after(Duration wait, Then then) {
    dialer->timer_.expires_after(wait);
    dialer->timer_.async_wait([self = shared_from_this(), then](const boost::system::error_code& error) {
      if (!error && self->dialer != nullptr) then(*self->dialer);
    });
  }
};

Duration redial_wait(int failures, double chance) {
  constexpr int kDoublingsMax = 16;
  const Duration doubled = Dialer::kWaitMin * (1 << std::clamp(failures, 0, kDoublingsMax));
  const Duration longest = std::min(doubled, Dialer::kWaitMax);
  return longest / 2 + from_seconds(to_seconds(longest / 2) * chance);
}

Dialer::Dialer(asio::io_context& io, Address address, core::Random random)
    : io_(io), address_(std::move(address)), random_(random), timer_(io) {}

Dialer::~Dialer() {
  if (attempt_) attempt_->give_up();
}

void Dialer::start(Handlers handlers) {
  handlers_ = std::move(handlers);
  attempt_ = std::make_shared<Attempt>(io_, *this);
  dial();
}

void Dialer::again(bool was_open) {
  failures_ = was_open ? 0 : failures_ + 1;
  const double chance = static_cast<double>(random_.next() >> 11) * 0x1p-53;
  attempt_ = std::make_shared<Attempt>(io_, *this);
  attempt_->after(redial_wait(failures_, chance), [](Dialer& dialer) { dialer.dial(); });
}

void Dialer::dial() {
  attempt_->after(kAttempt,
                  [](Dialer& dialer) { dialer.fail(fmt::format("no answer within {}", format_duration(kAttempt))); });
  const auto connected = [attempt = attempt_](const boost::system::error_code& error, const tcp::endpoint&) {
    if (attempt->dialer == nullptr) return;
    if (error) return attempt->dialer->fail(error.message());
    Dialer* dialer = std::exchange(attempt->dialer, nullptr);
    dialer->timer_.cancel();
    dialer->attempt_.reset();
    dialer->handlers_.on_socket(std::move(attempt->socket));
  };
  attempt_->resolver.async_resolve(address_.host, std::to_string(address_.port),
                                   [attempt = attempt_, connected](const boost::system::error_code& error,
                                                                   const tcp::resolver::results_type& found) {
                                     if (attempt->dialer == nullptr) return;
                                     if (error) return attempt->dialer->fail(error.message());
                                     asio::async_connect(attempt->socket, found, connected);
                                   });
}

void Dialer::fail(const std::string& reason) {
  attempt_->give_up();
  attempt_.reset();
  if (handlers_.on_failure)
    handlers_.on_failure(fmt::format("cannot reach {}:{}: {}", address_.host, address_.port, reason));
  again(false);
}

}  // namespace sgd::net
