#pragma once
// Descriptors that came from somebody else over a Unix socket. To close one takes as long as its sender likes: a socket
// with SO_LINGER an hour, a file of a file system of his own for good. So a listener takes none where the kernel can
// refuse them (Linux 6.16), and what has come all the same is closed beside the event loop, unread bytes included: a
// descriptor in them would be closed with the socket.

#include <vector>

#include "launcher/process/unique_fd.hpp"

namespace sgd::process {

/// Whoever sends a descriptor to this socket, or to one that it accepts, is refused it. Older kernels do not know that.
void take_no_descriptors(int socket);

/// On a thread of its own, which ends when they are closed.
void close_aside(std::vector<UniqueFd> descriptors);

/// Ends a connection over a Unix socket with all that its other end has sent and nobody has read.
void discard(UniqueFd socket);

/// Memory of memfd_create(): to close it is nobody's to hold up.
[[nodiscard]] bool is_memory(int fd);

}  // namespace sgd::process
