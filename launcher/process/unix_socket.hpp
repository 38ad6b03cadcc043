#pragma once
// Unix sockets for the shells: pairs, listeners, connections, descriptors that travel with
// bytes, and who is at the other end. Blocking calls have deadlines; every descriptor made
// or received here is close-on-exec. Framing and meaning are the caller's.

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::process {

/// Longest path of a Unix socket, in bytes.
inline constexpr std::size_t kSocketPathBytesMax = 107;
/// Descriptors in one message.
inline constexpr std::size_t kDescriptorsMax = 8;

/// `type` is SOCK_STREAM or SOCK_SEQPACKET; both ends block.
[[nodiscard]] Result<std::pair<UniqueFd, UniqueFd>> socket_pair(int type);

/// Who may connect, besides root.
struct SocketOwner {
  uid_t uid = 0;
  gid_t gid = 0;
};
/// Who connects, and is not taken yet.
inline constexpr int kBacklog = 128;
/// What those who connect may send besides bytes.
enum class Brings { kBytes, kDescriptors };
/// A non-blocking SOCK_STREAM listener, mode 0600; `path` must not exist. No `owner`: this process's user; another one
/// needs root.
[[nodiscard]] Result<UniqueFd> listen_unix(const std::string& path, const std::optional<SocketOwner>& owner = {},
                                           int backlog = kBacklog, Brings brings = Brings::kBytes);

/// A SOCK_STREAM connection, or an error when the listener has not taken it within `limit`.
[[nodiscard]] Result<UniqueFd> connect_unix(const std::string& path, Duration limit);

/// Sends bytes, the descriptors with the first of them. Returns how many bytes went; a message socket sends
/// all or none. Error code EAGAIN when a non-blocking socket is full. Never raises SIGPIPE.
[[nodiscard]] Result<std::size_t> send_with_descriptors(int socket, std::string_view bytes,
                                                        std::span<const int> descriptors);

struct Received {
  std::size_t bytes = 0;              ///< 0: the other end has closed.
  bool truncated = false;             ///< A message was longer than the buffer, or carried more than kDescriptorsMax.
  std::vector<UniqueFd> descriptors;  ///< In the order sent.
};
/// Error code EAGAIN when a non-blocking socket has nothing.
[[nodiscard]] Result<Received> receive_with_descriptors(int socket, std::span<char> buffer);

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
};
[[nodiscard]] Result<PeerCredentials> peer_credentials(int socket);

}  // namespace sgd::process
