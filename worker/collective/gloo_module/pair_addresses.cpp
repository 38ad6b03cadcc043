#include "worker/collective/gloo_module/pair_addresses.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstddef>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string_view>

namespace sgd::worker {
namespace {

using gloo::transport::tcp::Address;
using gloo::transport::tcp::sequence_number_t;

std::size_t bytes_of(const sockaddr_storage& socket) {
  if (socket.ss_family == AF_INET) return sizeof(sockaddr_in);
  if (socket.ss_family == AF_INET6) return sizeof(sockaddr_in6);
  throw std::invalid_argument("an address of neither IPv4 nor IPv6");
}

/// It lies at the same place in both kinds.
in_port_t& port_of(sockaddr_storage& socket) {
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return reinterpret_cast<sockaddr_in&>(socket).sin_port;
}

std::string to_hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  throw std::invalid_argument("a peer's address is not hexadecimal");
}

sockaddr_storage socket_of(std::string_view hex) {
  sockaddr_storage socket{};
  if (hex.size() % 2 != 0 || hex.size() / 2 > sizeof socket)
    throw std::invalid_argument("a peer's address has an impossible length");
  auto* bytes = reinterpret_cast<unsigned char*>(&socket);
  for (std::size_t i = 0; i < hex.size(); i += 2)
    *bytes++ = static_cast<unsigned char>(hex_digit(hex[i]) * 16 + hex_digit(hex[i + 1]));
  if (bytes_of(socket) != hex.size() / 2) throw std::invalid_argument("a peer's address has an impossible length");
  return socket;
}

/// Decimal, not negative; what is behind it stays in `text`.
sequence_number_t take_number(std::string_view& text) {
  sequence_number_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) throw std::invalid_argument("a peer's addresses have a number that is none");
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, char expected) {
  if (text.empty() || text.front() != expected) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::string pack_addresses(const std::vector<Address>& ends) {
  sockaddr_storage host = ends.at(0).getSockaddr();
  port_of(host) = 0;
  const std::size_t bytes = bytes_of(host);
  std::string text = to_hex({reinterpret_cast<const char*>(&host), bytes});
  for (const Address& end : ends) {
    sockaddr_storage socket = end.getSockaddr();
    text += '/';  // Sign by sign: g++ 12.2 sees an overlap where a literal and a number are added.
    text += std::to_string(ntohs(port_of(socket)));
    if (end.getSeq() != Address::kSequenceNumberUnset) {
      text += '+';
      text += std::to_string(end.getSeq());
    }
    port_of(socket) = 0;
    if (std::memcmp(&socket, &host, bytes) != 0)
      throw std::invalid_argument("the ends of one rank are of several hosts");
  }
  return text;
}

std::vector<char> unpack_address(const std::string& text, std::size_t index) {
  std::string_view rest = text;
  sockaddr_storage socket = socket_of(rest.substr(0, rest.find('/')));
  for (std::size_t skipped = 0; skipped <= index; ++skipped) {
    const std::size_t next = rest.find('/');
    if (next == rest.npos) throw std::invalid_argument("a peer gave too few addresses");
    rest.remove_prefix(next + 1);
  }
  const sequence_number_t port = take_number(rest);
  if (port > std::numeric_limits<in_port_t>::max())
    throw std::invalid_argument("a peer's address has an impossible port");
  port_of(socket) = htons(static_cast<in_port_t>(port));
  const sequence_number_t number = take(rest, '+') ? take_number(rest) : Address::kSequenceNumberUnset;
  return Address(socket, number).bytes();
}

}  // namespace sgd::worker
