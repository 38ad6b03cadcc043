#pragma once
// Where a coordinator is reached: a host and a port, or the path of a Unix socket on this machine.

#include <string>

namespace sgd::net {

/// Of a coordinator.
inline constexpr int kDefaultPort = 7070;

struct Address {
  std::string host = {};
  int port = 0;
  std::string path = {};  ///< Of a Unix socket; then host and port are not used.

  [[nodiscard]] bool is_local_socket() const { return !path.empty(); }
};

/// What stands before the path of a Unix socket: "unix:/run/coordinator.sock".
inline constexpr const char* kUnixScheme = "unix:";

/// "node1:7070", "[::1]:7070", "unix:/run/coordinator.sock".
[[nodiscard]] std::string to_text(const Address& address);

/// An IP address that no other machine can reach, or "localhost".
[[nodiscard]] bool is_loopback(const Address& address);

}  // namespace sgd::net
