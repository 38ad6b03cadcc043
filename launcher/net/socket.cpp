#include "launcher/net/socket.hpp"

#include <sys/socket.h>

#include <cstring>
#include <optional>

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>

#include "launcher/net/local_peer.hpp"

namespace sgd::net {
namespace {

using boost::asio::ip::tcp;

/// Nothing: it is none of TCP.
std::optional<tcp::endpoint> tcp_endpoint(const Socket::endpoint_type& any) {
  tcp::endpoint endpoint;
  const int family = any.data()->sa_family;
  if ((family != AF_INET && family != AF_INET6) || any.size() > endpoint.capacity()) return std::nullopt;
  std::memcpy(endpoint.data(), any.data(), any.size());
  endpoint.resize(any.size());
  return endpoint;
}

}  // namespace

std::string peer_name(Socket& socket) {
  if (const std::optional<LocalPeer> local = local_peer(socket.native_handle())) return describe(*local);
  boost::system::error_code error;
  const Socket::endpoint_type any = socket.remote_endpoint(error);
  const std::optional<tcp::endpoint> peer = error ? std::nullopt : tcp_endpoint(any);
  return peer ? fmt::format("{}:{}", peer->address().to_string(), peer->port()) : "a peer that is gone";
}

std::string local_ip(const Socket& socket) {
  boost::system::error_code error;
  const Socket::endpoint_type any = socket.local_endpoint(error);
  const std::optional<tcp::endpoint> own = error ? std::nullopt : tcp_endpoint(any);
  return own ? own->address().to_string() : std::string();
}

}  // namespace sgd::net
