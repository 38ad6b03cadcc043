#include "launcher/process/input_end.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include <boost/asio/post.hpp>

namespace sgd::process {

InputEnd::InputEnd(boost::asio::io_context& io, int fd, std::function<void()> done)
    : done_(std::move(done)), input_(io) {
  // A copy: the descriptor stays what it is for those who come after us.
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) {
    boost::asio::post(io, done_);
    return;
  }
  input_.assign(copy);
  wait();
}

void InputEnd::wait() {
  input_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error == boost::asio::error::operation_aborted) return;
    std::array<char, 4096> unused{};
    const ssize_t got = ::read(input_.native_handle(), unused.data(), unused.size());
    if (got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN))) return wait();
    done_();
  });
}

}  // namespace sgd::process
