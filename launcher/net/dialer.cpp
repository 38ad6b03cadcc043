#include "launcher/net/dialer.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>

#include "launcher/net/local_peer.hpp"

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

void Dialer::rest(Duration time) {
  if (attempt_) attempt_->give_up();
  attempt_ = std::make_shared<Attempt>(io_, *this);
  attempt_->after(time, [](Dialer& dialer) { dialer.dial(); });
}

void Dialer::dial() {
  if (address_.is_local_socket())
    return boost::asio::post(io_, [attempt = attempt_] {
      if (attempt->dialer != nullptr) attempt->dialer->dial_path();
    });
  attempt_->after(kAttempt,
                  [](Dialer& dialer) { dialer.fail(fmt::format("no answer within {}", format_duration(kAttempt))); });
  const auto connected = [attempt = attempt_](const boost::system::error_code& error, const tcp::endpoint&) {
    if (attempt->dialer == nullptr) return;
    if (error) return attempt->dialer->fail(error.message());
    attempt->dialer->hand_over(std::move(attempt->socket));
  };
  try {
    attempt_->resolver.async_resolve(address_.host, std::to_string(address_.port),
                                     [attempt = attempt_, connected](const boost::system::error_code& error,
                                                                     const tcp::resolver::results_type& found) {
                                       if (attempt->dialer == nullptr) return;
                                       if (error) return attempt->dialer->fail(error.message());
                                       asio::async_connect(attempt->socket, found, connected);
                                     });
  } catch (const boost::system::system_error& refused) {  // Names are looked up on a thread, if there is room for one.
    asio::post(io_, [attempt = attempt_, reason = refused.code().message()] {
      if (attempt->dialer != nullptr) attempt->dialer->fail(reason);
    });
  }
}

/// Connecting to a Unix socket succeeds or fails at once; EAGAIN says that its queue is full.
void Dialer::dial_path() {
  using asio::local::stream_protocol;
  const std::string& path = address_.path;
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    return fail(fmt::format("the path has {} bytes, and a Unix socket's at most {}", path.size(),
                            sizeof(sockaddr_un::sun_path) - 1));
  boost::system::error_code error;
  stream_protocol::socket socket(io_);
  socket.open(stream_protocol(), error);
  if (!error) socket.non_blocking(true, error);
  if (error) return fail(error.message());
  const stream_protocol::endpoint endpoint(path);
  if (::connect(socket.native_handle(), endpoint.data(), static_cast<socklen_t>(endpoint.size())) != 0)
    return fail(std::strerror(errno));
  const std::optional<LocalPeer> peer = local_peer(socket.native_handle());
  if (!peer) return fail("it does not say who listens there");
  if (!is_trusted(*peer) && ::geteuid() != 0)
    return fail(describe(*peer) + " listens there, and only this account and root are trusted");
  hand_over(std::move(socket));
}

void Dialer::hand_over(Socket socket) {
  attempt_->dialer = nullptr;
  timer_.cancel();
  attempt_.reset();
  handlers_.on_socket(std::move(socket));
}

void Dialer::fail(const std::string& reason) {
  attempt_->give_up();
  attempt_.reset();
  if (handlers_.on_failure) handlers_.on_failure(fmt::format("cannot reach {}: {}", to_text(address_), reason));
  again(false);
}

}  // namespace sgd::net
