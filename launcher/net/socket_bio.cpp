#include "launcher/net/socket_bio.hpp"

#include <sys/socket.h>

#include <cerrno>

namespace sgd::net {
namespace {

SocketState& state_of(BIO* bio) {
  return *static_cast<SocketState*>(BIO_get_data(bio));
}

/// Whether it is to be tried again when the socket is ready; anything else is noted.
bool is_blocked(SocketState& state) {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return true;
  state.error = errno;
  return false;
}

int write_bytes(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  SocketState& state = state_of(bio);
  const ssize_t sent = ::send(state.fd, bytes, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (sent < 0 && is_blocked(state)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int read_bytes(BIO* bio, char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  SocketState& state = state_of(bio);
  const ssize_t got = ::recv(state.fd, bytes, static_cast<std::size_t>(size), 0);
  if (got < 0 && is_blocked(state)) BIO_set_retry_read(bio);
  if (got == 0) state.is_eof = true;
  return static_cast<int>(got);
}

long control(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_EOF) return state_of(bio).is_eof ? 1 : 0;
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO_METHOD* make_method() {
  BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without SIGPIPE");
  SGD_ASSERT(method != nullptr && BIO_meth_set_write(method, write_bytes) == 1 &&
             BIO_meth_set_read(method, read_bytes) == 1 && BIO_meth_set_ctrl(method, control) == 1);
  return method;
}

}  // namespace

BIO* make_socket_bio(SocketState& state) {
  static const std::unique_ptr<BIO_METHOD, Freed<BIO_meth_free>> method(make_method());
  BIO* bio = BIO_new(method.get());
  SGD_ASSERT(bio != nullptr);
  BIO_set_data(bio, &state);
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace sgd::net
