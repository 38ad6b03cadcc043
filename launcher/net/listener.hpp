#pragma once
// Accepts TCP connections on one address. With a TLS identity they speak TLS, on every address; without one they speak
// plain text, and only loopback is served: no other machine can reach it.

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/result.hpp"
#include "launcher/net/connection.hpp"
#include "launcher/net/dialer.hpp"

namespace sgd::net {

class Listener {
 public:
  using OnSocket = std::function<void(boost::asio::ip::tcp::socket socket)>;

  /// `address.host` is an IP address; port 0 takes a free one. `tls` null: plain text. Errors: no such address, not
  /// loopback and no identity, an identity that is no coordinator's, in use.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> open(boost::asio::io_context& io, const Address& address,
                                                              std::shared_ptr<const TlsContext> tls = nullptr);

  void start(OnSocket on_socket);
  [[nodiscard]] int port() const { return port_; }
  /// For the connections that it accepts.
  [[nodiscard]] Security security() const { return {tls_, TlsSide::kAccepts}; }

 private:
  Listener(boost::asio::ip::tcp::acceptor acceptor, std::shared_ptr<const TlsContext> tls);
  void accept();

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  std::shared_ptr<const TlsContext> tls_;
  OnSocket on_socket_;
  int port_ = 0;
};

}  // namespace sgd::net
