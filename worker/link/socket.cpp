#include "worker/link/socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>

namespace sgd::worker {
namespace {

constexpr std::size_t kDescriptorsMax = 8;
constexpr std::size_t kReadBytes = 64 << 10;
constexpr Duration kRetryPause = std::chrono::milliseconds(5);

/// Errors that mean "the agent is not there yet" and not "it will never be".
bool worth_a_retry(int error) {
  return error == ENOENT || error == ECONNREFUSED || error == EAGAIN || error == EINTR;
}

void take_descriptors(msghdr& header, std::vector<UniqueFd>& descriptors) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      descriptors.emplace_back(fd);
    }
  }
}

Received receive_into(int fd, std::string& buffer, std::size_t bytes, int flags) {
  Received received;
  const std::size_t before = buffer.size();
  buffer.resize(before + bytes);
  iovec piece{buffer.data() + before, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))];
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t count = 0;
  do {
    count = ::recvmsg(fd, &header, flags | MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  buffer.resize(before + static_cast<std::size_t>(count > 0 ? count : 0));
  if (count > 0) {
    received.state = Received::State::kBytes;
    take_descriptors(header, received.descriptors);
  } else if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    received.state = Received::State::kNothing;
  } else {
    received.state = Received::State::kEnd;
  }
  return received;
}

}  // namespace

Result<UniqueFd> connect_unix(const std::string& path, Duration deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Error{"socket path is too long: " + path, ENAMETOOLONG};
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  const auto end = std::chrono::steady_clock::now() + deadline;
  for (;;) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd.get() < 0) return system_error("cannot create a socket");
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    if (!worth_a_retry(errno) || std::chrono::steady_clock::now() >= end)
      return system_error("cannot reach the agent at " + path);
    (void)::poll(nullptr, 0, static_cast<int>(kRetryPause / std::chrono::milliseconds(1)));
  }
}

Received receive(int fd, std::string& buffer) {
  return receive_into(fd, buffer, kReadBytes, MSG_DONTWAIT);
}

Received receive_packet(int fd, std::string& packet, std::size_t bytes_max) {
  packet.clear();
  return receive_into(fd, packet, bytes_max, 0);
}

Status send_packet(int fd, const std::string& packet, int descriptor) {
  iovec piece{const_cast<char*>(packet.data()), packet.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  if (descriptor >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &descriptor, sizeof descriptor);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return system_error("cannot send a packet");
  return {};
}

}  // namespace sgd::worker
