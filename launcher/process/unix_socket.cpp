#include "launcher/process/unix_socket.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "launcher/process/clock.hpp"
#include "launcher/process/foreign_fds.hpp"

namespace sgd::process {
namespace {

constexpr std::size_t kSentAtOnce = 253;  ///< The kernel's own limit (SCM_MAX_FD).

Result<sockaddr_un> socket_address(const std::string& path) {
  if (path.empty() || path.size() > kSocketPathBytesMax) {
    return Error{"socket path " + path + " has " + std::to_string(path.size()) + " bytes; 1 to " +
                     std::to_string(kSocketPathBytesMax) + " are possible",
                 ENAMETOOLONG};
  }
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

}  // namespace

Result<std::pair<UniqueFd, UniqueFd>> socket_pair(int type) {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) return system_error("cannot make a socket pair");
  return std::make_pair(UniqueFd(ends[0]), UniqueFd(ends[1]));
}

Result<UniqueFd> listen_unix(const std::string& path, const std::optional<SocketOwner>& owner, int backlog,
                             Brings brings) {
  auto address = socket_address(path);
  if (!address) return address.error();
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_error("cannot make a socket");
  if (brings == Brings::kBytes) take_no_descriptors(fd.get());
  // The mode of the socket file is set before the listener answers anybody.
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.value()), sizeof(sockaddr_un)) != 0) {
    return system_error("cannot create socket " + path);
  }
  if (::chmod(path.c_str(), 0600) != 0) return system_error("cannot protect socket " + path);
  if (owner && ::lchown(path.c_str(), owner->uid, owner->gid) != 0)
    return system_error("cannot give socket " + path + " to its owner");
  if (::listen(fd.get(), backlog) != 0) return system_error("cannot listen on " + path);
  return fd;
}

Result<UniqueFd> connect_unix(const std::string& path, Duration limit) {
  auto address = socket_address(path);
  if (!address) return address.error();
  const TimePoint deadline = monotonic_now() + limit;
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return system_error("cannot make a socket");
  // A full backlog makes connect() wait without limit; the send timeout bounds it.
  const Duration wait = std::max<Duration>(limit, std::chrono::milliseconds(1));
  timeval timeout{};
  timeout.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(wait).count();
  timeout.tv_usec = std::chrono::duration_cast<std::chrono::microseconds>(wait % std::chrono::seconds(1)).count();
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout,
                     sizeof timeout);  // Ignoring: only the bound is lost.
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.value()), sizeof(sockaddr_un)) != 0) {
    if (errno == EINTR && monotonic_now() < deadline) continue;
    if (errno == EAGAIN) return Error{"nobody takes the connection to " + path, ETIMEDOUT};
    return system_error("cannot connect to " + path);
  }
  timeout = {};
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);  // Ignoring: as above.
  return fd;
}

Result<std::size_t> send_with_descriptors(int socket, std::string_view bytes, std::span<const int> descriptors) {
  SGD_ASSERT(descriptors.size() <= kDescriptorsMax);
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kDescriptorsMax)] = {};
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(head), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    const ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno != EINTR) return system_error("cannot send on a Unix socket");
  }
}

Result<Received> receive_with_descriptors(int socket, std::span<char> buffer) {
  iovec part{buffer.data(), buffer.size()};
  // Room for all that a message can carry: what had none would be closed by the kernel, here and now.
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kSentAtOnce)] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t count = -1;
  do {
    count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count < 0) return system_error("cannot receive on a Unix socket");
  Received received;
  received.bytes = static_cast<std::size_t>(count);
  received.truncated = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t number = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < number; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof fd);
      received.descriptors.emplace_back(fd);
    }
  }
  received.truncated |= received.descriptors.size() > kDescriptorsMax;
  return received;
}

Result<PeerCredentials> peer_credentials(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return system_error("cannot tell who is at the other end of a socket");
  }
  return PeerCredentials{credentials.pid, credentials.uid};
}

}  // namespace sgd::process
