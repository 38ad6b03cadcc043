#include "launcher/net/socket.hpp"

#include <cstring>

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>

#include "launcher/net/local_peer.hpp"

namespace sgd::net {

std::string peer_name(Socket& socket) {
  if (const std::optional<LocalPeer> local = local_peer(socket.native_handle())) return describe(*local);
  boost::system::error_code error;
  const Socket::endpoint_type any = socket.remote_endpoint(error);
  boost::asio::ip::tcp::endpoint peer;
  if (error || any.size() > peer.capacity()) return "a peer that is gone";
  std::memcpy(peer.data(), any.data(), any.size());
  peer.resize(any.size());
  return fmt::format("{}:{}", peer.address().to_string(), peer.port());
}

}  // namespace sgd::net
