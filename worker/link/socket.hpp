#pragma once
// System calls of the link: connecting within a deadline, and reading bytes together with the
// descriptors that travel beside them. Knows nothing of messages.

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "worker/link/unique_fd.hpp"

namespace sgd::worker {

/// A non-blocking stream connected to the Unix socket `path`. Keeps trying until `deadline` while the
/// socket is absent, refuses, or has a full backlog: the agent may still be binding it.
[[nodiscard]] Result<UniqueFd> connect_unix(const std::string& path, Duration deadline);

/// What one recvmsg() brought.
struct Received {
  enum class State {
    kBytes,    ///< Something was read.
    kNothing,  ///< Nothing is there now.
    kEnd,      ///< The peer has closed, or the socket is broken.
  };
  State state = State::kNothing;
  std::vector<UniqueFd> descriptors;  ///< In the sender's order; close-on-exec.
};

/// Appends what is readable to `buffer`.
[[nodiscard]] Received receive(int fd, std::string& buffer);

/// One message of a SOCK_SEQPACKET socket; the state is kEnd once the peer has closed.
[[nodiscard]] Received receive_packet(int fd, std::string& packet, std::size_t bytes_max);

/// One message with at most one descriptor (-1: none).
[[nodiscard]] Status send_packet(int fd, const std::string& packet, int descriptor);

}  // namespace sgd::worker
