#include "launcher/net/local_peer.hpp"

#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include <fmt/format.h>

namespace sgd::net {
namespace {

/// Asked for once: a directory service may take its time, and connections come all the time.
const std::string& own_account() {
  static const std::string name = [] {
    std::array<char, 16 << 10> texts;
    passwd entry{};
    passwd* found = nullptr;
    const bool is_known =
        ::getpwuid_r(::geteuid(), &entry, texts.data(), texts.size(), &found) == 0 && found != nullptr;
    return is_known ? std::string(found->pw_name) : std::to_string(::geteuid());
  }();
  return name;
}

}  // namespace

std::optional<LocalPeer> local_peer(int socket) {
  int family = 0;
  socklen_t size = sizeof family;
  if (::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size) != 0 || family != AF_UNIX) return std::nullopt;
  ucred credentials{};
  size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  if (credentials.uid == static_cast<uid_t>(-1)) return std::nullopt;
  LocalPeer peer{credentials.uid, credentials.pid, std::to_string(credentials.uid)};
  if (peer.uid == 0) peer.account = "root";
  if (peer.uid == ::geteuid()) peer.account = own_account();
  return peer;
}

bool is_trusted(const LocalPeer& peer) {
  return peer.uid == 0 || peer.uid == ::geteuid();
}

std::string describe(const LocalPeer& peer) {
  return fmt::format("account {} (uid {}), process {}", peer.account, peer.uid, peer.pid);
}

}  // namespace sgd::net
