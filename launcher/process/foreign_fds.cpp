#include "launcher/process/foreign_fds.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <memory>
#include <utility>

#include "common/base/thread.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::process {
namespace {

constexpr int kPassRights = 83;  ///< SO_PASSRIGHTS, which the C library's headers may not have.
constexpr std::size_t kDrainBytes = 16 << 10;

/// What nobody holds up is closed at once, and a socket that would wait does not.
void let_go(const UniqueFd& fd) {
  const linger none{};
  (void)::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &none, sizeof none);  // Ignoring: it may be no socket.
}

}  // namespace

void take_no_descriptors(int socket) {
  const int none = 0;
  (void)::setsockopt(socket, SOL_SOCKET, kPassRights, &none, sizeof none);  // Ignoring: see the header.
}

void close_aside(std::vector<UniqueFd> descriptors) {
  if (descriptors.empty()) return;
  const auto held = std::make_shared<std::vector<UniqueFd>>(std::move(descriptors));
  auto closing = start_thread([held] { held->clear(); });
  if (closing) {
    // tidy: allow detach: it owns all that it touches, and whoever has sent them says how long it takes.
    closing.value().detach();
    return;
  }
  for (const UniqueFd& fd : *held) let_go(fd);
}

void discard(UniqueFd socket) {
  if (!socket) return;
  (void)::shutdown(socket.get(), SHUT_RD);  // Nothing more gets in behind what is read here.
  std::vector<UniqueFd> found;
  std::array<char, kDrainBytes> bytes{};
  if (!set_nonblocking(socket.get())) return close_aside(std::move(found));
  for (;;) {
    auto received = receive_with_descriptors(socket.get(), bytes);
    if (!received || received.value().bytes == 0) break;
    for (UniqueFd& fd : received.value().descriptors) found.push_back(std::move(fd));
  }
  close_aside(std::move(found));
}

bool is_memory(int fd) {
  return ::fcntl(fd, F_GET_SEALS) >= 0;
}

}  // namespace sgd::process
