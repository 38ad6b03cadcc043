#include "launcher/net/listener.hpp"

#include <utility>

#include <fmt/format.h>

namespace sgd::net {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

/// Descriptors have run out, for example: whoever waits is served when some are free again.
constexpr Duration kPause = std::chrono::milliseconds(100);

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(asio::io_context& io, const Address& address,
                                                 std::shared_ptr<const TlsContext> tls) {
  boost::system::error_code error;
  const asio::ip::address ip = asio::ip::make_address(address.host, error);
  const std::string name = fmt::format("{}:{}", address.host, address.port);
  if (error || address.port < 0 || address.port > 65535)
    return Error{fmt::format("cannot listen on {}: not an IP address and a port, as 127.0.0.1:7070 is", name)};
  if (!tls && !ip.is_loopback())
    return Error{
        fmt::format("cannot listen on {}: without a TLS identity only loopback addresses are served, as "
                    "127.0.0.1 is; run `sgd-launch init` to make one",
                    name)};
  if (tls && tls->own().role != Role::kCoordinator)
    return Error{fmt::format("cannot listen on {}: the TLS identity is of {} {}, and only a coordinator's listens",
                             name, role_name(tls->own().role), tls->own().name)};
  const tcp::endpoint endpoint(ip, static_cast<std::uint16_t>(address.port));
  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return Error{fmt::format("cannot listen on {}: {}", name, error.message()), error.value()};
  return std::unique_ptr<Listener>(new Listener(std::move(acceptor), std::move(tls)));
}

Listener::Listener(tcp::acceptor acceptor, std::shared_ptr<const TlsContext> tls)
    : acceptor_(std::move(acceptor)),
      pause_(acceptor_.get_executor()),
      tls_(std::move(tls)),
      port_(acceptor_.local_endpoint().port()) {}

void Listener::start(OnSocket on_socket) {
  on_socket_ = std::move(on_socket);
  accept();
}

void Listener::accept() {
  acceptor_.async_accept([this](const boost::system::error_code& error, tcp::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) {
      pause_.expires_after(kPause);
      return pause_.async_wait([this](const boost::system::error_code& ended) {
        if (!ended) accept();
      });
    }
    on_socket_(std::move(socket));
    accept();
  });
}

}  // namespace sgd::net
