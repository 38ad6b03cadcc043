#pragma once
// Accepts connections on one address. Over TCP with a TLS identity they speak TLS, on every address; without one they
// speak plain text, and only loopback is served: no other machine can reach it. Over a Unix socket they speak plain
// text, and the kernel says who is there (local_peer.hpp).

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>

#include "common/base/result.hpp"
#include "launcher/net/connection.hpp"
#include "launcher/net/dialer.hpp"
#include "launcher/net/timer.hpp"

namespace sgd::net {

class Listener {
 public:
  using OnSocket = std::function<void(Socket socket)>;

  /// `address.host` is an IP address; port 0 takes a free one. `tls` null: plain text, as always over a Unix socket. A
  /// socket that a dead listener has left is replaced. Errors: no such address, not loopback and no identity, an
  /// identity that is no coordinator's, in use.
  [[nodiscard]] static Result<std::unique_ptr<Listener>> open(boost::asio::io_context& io, const Address& address,
                                                              std::shared_ptr<const TlsContext> tls = nullptr);

  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  void start(OnSocket on_socket);
  /// 0: it is a Unix socket.
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] bool is_local_socket() const { return !path_.empty(); }
  /// For the connections that it accepts.
  [[nodiscard]] Security security() const { return {tls_, TlsSide::kAccepts}; }

 private:
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

  Listener(Acceptor acceptor, std::shared_ptr<const TlsContext> tls, int port, std::string path);
  [[nodiscard]] static Result<std::unique_ptr<Listener>> open_path(boost::asio::io_context& io, const Address& address);
  void accept();

  Acceptor acceptor_;
  Timer pause_;
  std::shared_ptr<const TlsContext> tls_;
  OnSocket on_socket_;
  int port_;
  std::string path_;
  std::shared_ptr<char> is_here_ = std::make_shared<char>();  ///< For a socket that waits for its turn.
};

}  // namespace sgd::net
