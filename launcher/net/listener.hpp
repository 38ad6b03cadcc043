#pragma once
// Accepts TCP connections on one address. Without a TLS identity only loopback is served: nobody else can reach it.

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/result.hpp"
#include "launcher/net/dialer.hpp"

namespace sgd::net {

class Listener {
 public:
  using OnSocket = std::function<void(boost::asio::ip::tcp::socket socket)>;

  /// `address.host` is an IP address; port 0 takes a free one. Errors: no such address, not loopback, in use.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> open(boost::asio::io_context& io, const Address& address);

  void start(OnSocket on_socket);
  [[nodiscard]] int port() const { return port_; }

 private:
  explicit Listener(boost::asio::ip::tcp::acceptor acceptor);
  void accept();

  boost::asio::ip::tcp::acceptor acceptor_;
  boost::asio::steady_timer pause_;
  OnSocket on_socket_;
  int port_ = 0;
};

}  // namespace sgd::net
