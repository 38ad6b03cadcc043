#pragma once
// OpenSSL's way to a socket. Its own (SSL_set_fd) writes with write(2), which ends a process by SIGPIPE when
// the peer is gone; this one sends without, and notes how the socket has ended.

#include "launcher/net/openssl.hpp"

namespace sgd::net {

struct SocketState {
  int fd = -1;
  bool is_eof = false;
  int error = 0;  ///< errno of a call that failed for good.
};

/// `state` must outlive it. Never null.
[[nodiscard]] BIO* make_socket_bio(SocketState& state);

}  // namespace sgd::net
