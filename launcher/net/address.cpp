#include "launcher/net/address.hpp"

#include <fmt/format.h>
#include <boost/asio/ip/address.hpp>

namespace sgd::net {

std::string to_text(const Address& address) {
  if (address.is_local_socket()) return kUnixScheme + address.path;
  const bool is_v6 = address.host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", address.host, address.port) : fmt::format("{}:{}", address.host, address.port);
}

bool is_loopback(const Address& address) {
  if (address.is_local_socket()) return false;
  if (address.host == "localhost") return true;
  boost::system::error_code error;
  const auto ip = boost::asio::ip::make_address(address.host, error);
  return !error && ip.is_loopback();
}

}  // namespace sgd::net
