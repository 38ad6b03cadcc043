#pragma once
// Who is at the other end of a Unix socket, as the kernel says: the account that made its end. Over such a socket the
// account takes the place of a certificate; only our own and root's are trusted.

#include <sys/types.h>

#include <optional>
#include <string>

namespace sgd::net {

struct LocalPeer {
  uid_t uid = 0;
  pid_t pid = 0;
  std::string account;  ///< Its name where we know it without asking anybody: our own, and root's; else the number.
};

/// Nothing for another kind of socket, and for one that is not connected.
[[nodiscard]] std::optional<LocalPeer> local_peer(int socket);

/// May do here what we may: our own account, and root.
[[nodiscard]] bool is_trusted(const LocalPeer& peer);

/// "account eva (uid 1000), process 4711".
[[nodiscard]] std::string describe(const LocalPeer& peer);

}  // namespace sgd::net
