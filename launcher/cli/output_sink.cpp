#include "launcher/cli/output_sink.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <boost/asio/post.hpp>

#include "launcher/process/own_terminal.hpp"

namespace sgd::cli {
namespace {

/// A pipe that polls writable takes this much without blocking (pipe(7), PIPE_BUF).
constexpr std::size_t kPipePieceBytes = 4096;
constexpr std::size_t kFilePieceBytes = 1 << 20;

bool has_room(int fd) {
  pollfd poll_fd{fd, POLLOUT, 0};
  return ::poll(&poll_fd, 1, 0) == 1;
}

bool has_lost_any = false;

}  // namespace

bool has_lost_output() {
  return has_lost_any;
}

OutputSink::OutputSink(boost::asio::io_context& io, int fd, std::function<void()> on_turn)
    : io_(io), fd_(fd), on_turn_(std::move(on_turn)), watched_(io) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) {
    is_closed_ = true;
    return;
  }
  is_terminal_ = ::isatty(fd) == 1;
  is_pollable_ = !S_ISREG(info.st_mode) && !S_ISBLK(info.st_mode);
  if (!is_pollable_) return;
  process::UniqueFd own = process::own_end_of_terminal(fd);
  const bool is_own = static_cast<bool>(own);
  if (!is_own) own.reset(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  boost::system::error_code error;
  watched_.assign(own.get(), error);
  is_pollable_ = !error;  // What epoll cannot watch (/dev/null too) never makes us wait.
  if (error) return;
  const int watched = own.release();
  if (is_own) fd_ = watched;
}

void OutputSink::write(std::string bytes, std::function<void()> on_written) {
  queue_.push_back({std::move(bytes), 0, std::move(on_written)});
  if (!is_waiting_) flush();
}

std::size_t OutputSink::offer(std::string_view text) const {
  std::size_t taken = 0;
  while (taken < text.size() && has_room(fd_)) {
    const ssize_t count = ::write(fd_, text.data() + taken, std::min(text.size() - taken, kPipePieceBytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    taken += static_cast<std::size_t>(count);
  }
  return taken;
}

void OutputSink::flush() {
  while (!queue_.empty()) {
    if (!write_some(queue_.front())) return wait_writable();
  }
  on_turn_();
}

/// False when the reader has no room now.
bool OutputSink::write_some(Piece& piece) {
  while (piece.written < piece.bytes.size() && !is_closed_) {
    if (is_pollable_ && !has_room(fd_)) return false;
    const std::size_t most = is_pollable_ ? kPipePieceBytes : kFilePieceBytes;
    const std::size_t size = std::min(most, piece.bytes.size() - piece.written);
    const ssize_t count = ::write(fd_, piece.bytes.data() + piece.written, size);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) close_for(errno);  // The files of the run have everything.
    if (count > 0) piece.written += static_cast<std::size_t>(count);
  }
  finish_piece();
  return true;
}

void OutputSink::close_for(int error) {
  is_closed_ = true;
  // Whoever has stopped reading has had enough: a pipe's or a socket's other end, and a terminal that was closed.
  const bool is_reader_gone = error == EPIPE || error == ECONNRESET || (error == EIO && is_terminal_);
  if (is_reader_gone) return;
  error_ = error;
  has_lost_any = true;
}

void OutputSink::finish_piece() {
  const std::function<void()> on_written = std::move(queue_.front().on_written);
  queue_.pop_front();
  if (on_written) on_written();
}

void OutputSink::wait_writable() {
  is_waiting_ = true;
  if (!is_pollable_) {  // A file that says EAGAIN: try again in the next turn.
    boost::asio::post(io_, [this] {
      is_waiting_ = false;
      flush();
    });
    return;
  }
  watched_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                      [this](const boost::system::error_code& error) {
                        is_waiting_ = false;
                        if (error) is_closed_ = true;
                        flush();
                      });
}

void OutputSink::give_up() {
  is_closed_ = true;
  if (!is_waiting_) return flush();
  boost::system::error_code ignored;
  if (is_pollable_) watched_.cancel(ignored);  // Whoever waits goes on, and finds it closed.
}

}  // namespace sgd::cli
