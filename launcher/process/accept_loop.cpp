#include "launcher/process/accept_loop.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/process/foreign_fds.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::process {

namespace asio = boost::asio;

struct AcceptLoop::State : std::enable_shared_from_this<State> {
  State(asio::io_context& io, Handlers with) : listener(io), pause(io), handlers(std::move(with)) {}

  void wait() {
    listener.async_wait(asio::posix::stream_descriptor::wait_read,
                        [self = shared_from_this()](const boost::system::error_code& error) {
                          if (!error) self->take_all();
                        });
  }

  void take_all() {
    while (!is_stopped) {
      auto socket = accept_one(listener.native_handle());
      if (socket) {
        is_in_trouble = false;
        handlers.on_socket(std::move(socket).value());
        continue;
      }
      const int code = socket.error().code;
      if (code == EAGAIN || code == EWOULDBLOCK) return wait();
      if (code == ECONNABORTED || code == EPROTO) continue;  // Of one that has gone again.
      if (!std::exchange(is_in_trouble, true) && handlers.on_trouble)
        handlers.on_trouble(socket.error().message + "; whoever connects waits until there is room again");
      return rest();
    }
  }

  void rest() {
    pause.expires_after(kPause);
    pause.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (!error) self->take_all();
    });
  }

  void stop() {
    is_stopped = true;
    handlers = {};
    // Who waits there may have sent something already: see foreign_fds.hpp.
    for (int seen = 0; seen <= kBacklog; ++seen) {
      auto waiting = accept_one(listener.native_handle());
      if (!waiting) break;
      discard(std::move(waiting).value());
    }
    boost::system::error_code ignored;
    listener.close(ignored);
    pause.cancel();
  }

  asio::posix::stream_descriptor listener;
  asio::steady_timer pause;
  Handlers handlers;
  bool is_in_trouble = false;
  bool is_stopped = false;
};

AcceptLoop::AcceptLoop(asio::io_context& io, UniqueFd listener, Handlers handlers)
    : state_(std::make_shared<State>(io, std::move(handlers))) {
  state_->listener.assign(listener.release());
  state_->wait();
}

AcceptLoop::~AcceptLoop() {
  state_->stop();
}

Result<UniqueFd> accept_one(int listener) {
  UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) return system_error("cannot take a connection");
  return socket;
}

bool is_shortage(int code) {
  return code == EMFILE || code == ENFILE || code == ENOMEM || code == ENOBUFS;
}

}  // namespace sgd::process
