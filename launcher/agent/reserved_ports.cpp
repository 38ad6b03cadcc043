#include "launcher/agent/reserved_ports.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include <fmt/format.h>

namespace sgd::agent {
namespace {

bool set(int fd, int level, int option, int value) {
  return ::setsockopt(fd, level, option, &value, sizeof value) == 0;
}

template <class Address>
process::UniqueFd bound(Address address) {
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  process::UniqueFd fd(::socket(generic->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool is_bound = fd && (generic->sa_family == AF_INET || set(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0)) &&
                        set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1) && ::bind(fd.get(), generic, sizeof address) == 0;
  return is_bound ? std::move(fd) : process::UniqueFd();
}

/// On all addresses; of IPv4 alone where the system has no other. None: errno says why.
process::UniqueFd bound_anywhere(int port) {
  sockaddr_in6 both{};
  both.sin6_family = AF_INET6;
  both.sin6_port = htons(static_cast<std::uint16_t>(port));
  process::UniqueFd fd = bound(both);
  if (fd || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL)) return fd;
  sockaddr_in old{};
  old.sin_family = AF_INET;
  old.sin_port = htons(static_cast<std::uint16_t>(port));
  return bound(old);
}

/// 0 when it cannot be told.
int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  // Both kinds have it in the same place.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

struct Listener {
  int port = 0;
  uid_t user = 0;
};

/// A line of /proc/net/tcp: number, local address, remote one, state, queues, timer, retransmits, user. Nothing: it is
/// no socket that listens.
std::optional<Listener> listener_in(const std::string& line) {
  constexpr const char* kListens = "0A";
  std::istringstream words(line);
  std::string number, local, remote, state, queues, timer, retransmits, user;
  if (!(words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user) || state != kListens)
    return std::nullopt;
  const std::size_t colon = local.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  Listener found;
  const auto port = std::from_chars(local.data() + colon + 1, local.data() + local.size(), found.port, 16);
  const auto uid = std::from_chars(user.data(), user.data() + user.size(), found.user);
  if (port.ec != std::errc() || uid.ec != std::errc()) return std::nullopt;
  return found;
}

/// As this process sees the network.
std::string find_taker(const std::vector<int>& ports, uid_t user) {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      const auto listener = listener_in(line);
      if (!listener || listener->user == user || listener->user == 0) continue;
      if (std::find(ports.begin(), ports.end(), listener->port) != ports.end())
        return fmt::format("user {} of this node has taken port {}, which was reserved for its run (MASTER_PORT)",
                           listener->user, listener->port);
    }
  }
  return {};
}

}  // namespace

Result<std::vector<int>> ReservedPorts::reserve(const RunId& run, int count) {
  release(run);
  std::vector<int> ports;
  std::vector<process::UniqueFd> sockets;
  while (static_cast<int>(ports.size()) < count) {
    sockets.push_back(bound_anywhere(0));
    ports.push_back(sockets.back() ? port_of(sockets.back().get()) : 0);
    if (ports.back() == 0)
      return system_error(fmt::format("no port of this node can be reserved for MASTER_PORT{}",
                                      count == 1 ? "" : fmt::format(" and {} ranks", count - 1)));
  }
  sockets_[run] = std::move(sockets);
  return ports;
}

Status ReservedPorts::hold(const RunId& run, const std::vector<int>& ports) {
  release(run);
  std::vector<process::UniqueFd>& sockets = sockets_[run];
  Status status;
  for (const int port : ports) {
    process::UniqueFd fd = bound_anywhere(port);
    if (fd)
      sockets.push_back(std::move(fd));
    else
      status = system_error(fmt::format("port {} cannot be held", port));
  }
  return status;
}

void ReservedPorts::release(const RunId& run) {
  sockets_.erase(run);
  takers_.erase(run);
}

const std::string& ReservedPorts::taken_by(const RunId& run, uid_t user) {
  static const std::string kNobody;
  const auto sockets = sockets_.find(run);
  if (sockets == sockets_.end()) return kNobody;
  const auto [taker, is_new] = takers_.try_emplace(run);
  if (!is_new) return taker->second;
  std::vector<int> ports;
  for (const process::UniqueFd& fd : sockets->second) ports.push_back(port_of(fd.get()));
  taker->second = find_taker(ports, user);
  return taker->second;
}

}  // namespace sgd::agent
