#include "launcher/cli/console.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include <boost/asio/post.hpp>

#include "launcher/cli/terminal_text.hpp"

namespace sgd::cli {
namespace {

/// A pipe that polls writable takes this much without blocking (pipe(7), PIPE_BUF).
constexpr std::size_t kPipePieceBytes = 4096;
constexpr std::size_t kFilePieceBytes = 1 << 20;

bool has_room(int fd) {
  pollfd poll_fd{fd, POLLOUT, 0};
  return ::poll(&poll_fd, 1, 0) == 1;
}

std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace

ConsoleStyle detect_style(bool no_color, bool quiet) {
  ConsoleStyle style;
  style.is_terminal = ::isatty(STDERR_FILENO) == 1;
  const char* no_color_env = std::getenv("NO_COLOR");
  style.color = style.is_terminal && !no_color && (no_color_env == nullptr || *no_color_env == '\0');
  style.quiet = quiet;
  return style;
}

Console::Console(boost::asio::io_context& io, ConsoleStyle style) : io_(io), style_(style), stdout_(io) {
  struct stat info {};
  if (::fstat(STDOUT_FILENO, &info) != 0) {
    stdout_closed_ = true;
    return;
  }
  stdout_is_terminal_ = ::isatty(STDOUT_FILENO) == 1;
  stdout_is_pollable_ = !S_ISREG(info.st_mode) && !S_ISBLK(info.st_mode);
  const int copy = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  boost::system::error_code error;
  if (stdout_is_pollable_) stdout_.assign(copy, error);
  if (error || !stdout_is_pollable_) {  // What epoll cannot watch (/dev/null too) never makes us wait.
    stdout_is_pollable_ = false;
    if (copy >= 0) ::close(copy);
  }
}

void Console::result(const std::string& line) {
  output(line + "\n", nullptr);
}

void Console::output(std::string lines, std::function<void()> on_written) {
  if (stdout_is_terminal_) lines = for_terminal(lines, Steering::kColors);
  queue_.push_back({std::move(lines), 0, std::move(on_written)});
  if (!waiting_) flush();
}

void Console::flush() {
  if (!queue_.empty()) clear_status();
  while (!queue_.empty()) {
    if (!write_some(queue_.front())) return wait_writable();
  }
  draw_status();
  if (when_drained_) boost::asio::post(io_, std::exchange(when_drained_, nullptr));
}

/// False when the reader has no room now.
bool Console::write_some(Piece& piece) {
  while (piece.written < piece.bytes.size() && !stdout_closed_) {
    if (stdout_is_pollable_ && !has_room(STDOUT_FILENO)) return false;
    const std::size_t most = stdout_is_pollable_ ? kPipePieceBytes : kFilePieceBytes;
    const std::size_t size = std::min(most, piece.bytes.size() - piece.written);
    const ssize_t count = ::write(STDOUT_FILENO, piece.bytes.data() + piece.written, size);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return false;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) stdout_closed_ = true;  // The files of the run have everything.
    if (count > 0) piece.written += static_cast<std::size_t>(count);
  }
  finish_piece();
  return true;
}

void Console::finish_piece() {
  const std::function<void()> on_written = std::move(queue_.front().on_written);
  queue_.pop_front();
  if (on_written) on_written();
}

void Console::wait_writable() {
  if (!stdout_is_pollable_) {  // A file that says EAGAIN: try again in the next turn.
    waiting_ = true;
    boost::asio::post(io_, [this] {
      waiting_ = false;
      flush();
    });
    return;
  }
  waiting_ = true;
  stdout_.async_wait(boost::asio::posix::stream_descriptor::wait_write, [this](const boost::system::error_code& error) {
    waiting_ = false;
    if (error) stdout_closed_ = true;
    flush();
  });
}

void Console::give_up() {
  stdout_closed_ = true;
  if (!waiting_) return flush();
  boost::system::error_code ignored;
  if (stdout_is_pollable_) stdout_.cancel(ignored);  // Whoever waits goes on, and finds it closed.
}

void Console::when_drained(std::function<void()> handler) {
  if (drained()) return boost::asio::post(io_, std::move(handler));
  when_drained_ = std::move(handler);
}

void Console::narrate(const std::string& line) {
  if (!style_.quiet) block(for_terminal(line, Steering::kNone) + "\n");
}

void Console::complain(const std::string& label, const std::string& line) {
  const char* color = label == "warning" ? "\x1b[33m" : "\x1b[31m";
  const std::string said = for_terminal(line, Steering::kNone);
  block(style_.color ? "sgd-launch: " + std::string(color) + label + ":\x1b[0m " + said + "\n"
                     : "sgd-launch: " + label + ": " + said + "\n");
}

void Console::block(const std::string& text) {
  clear_status();
  write_stderr(text);
  if (queue_.empty()) draw_status();
}

void Console::status(const std::string& line) {
  if (!style_.is_terminal || style_.quiet) return;
  status_ = for_terminal(line, Steering::kNone).substr(0, terminal_columns() - 1);
  if (!queue_.empty()) return;
  clear_status();
  draw_status();
}

void Console::clear_status() {
  if (!status_shown_) return;
  write_stderr("\r\x1b[K");
  status_shown_ = false;
}

void Console::draw_status() {
  if (status_.empty() || status_shown_) return;
  write_stderr(status_);
  status_shown_ = true;
}

/// A terminal that is stopped (Ctrl-S) loses narration instead of stopping the launcher.
void Console::write_stderr(const std::string& text) {
  std::size_t done = 0;
  while (done < text.size() && has_room(STDERR_FILENO)) {
    const ssize_t count = ::write(STDERR_FILENO, text.data() + done, std::min(text.size() - done, kPipePieceBytes));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    done += static_cast<std::size_t>(count);
  }
}

}  // namespace sgd::cli
