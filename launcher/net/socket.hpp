#pragma once
// A connected stream socket of any kind: TCP, or a Unix socket. What carries a Connection; a tcp::socket becomes one by
// being moved.

#include <string>

#include <boost/asio/generic/stream_protocol.hpp>

namespace sgd::net {

using Socket = boost::asio::generic::stream_protocol::socket;

/// "10.0.0.2:41822", or the account at the other end of a Unix socket.
[[nodiscard]] std::string peer_name(Socket& socket);

/// "10.0.0.1": of this end; empty over a Unix socket, and when it is gone.
[[nodiscard]] std::string local_ip(const Socket& socket);

}  // namespace sgd::net
