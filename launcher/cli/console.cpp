#include "launcher/cli/console.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <system_error>
#include <utility>

#include <boost/asio/post.hpp>

#include "launcher/cli/terminal_text.hpp"

namespace sgd::cli {
namespace {

constexpr std::size_t kWaitingBytesMax = 256 << 10;
constexpr std::size_t kBarsMax = 16;

winsize terminal_size() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {24, 80, 0, 0};
  return size;
}

/// By their device: /dev/tty is another file than the terminal that it stands for.
bool are_one_terminal(int first, int second) {
  unsigned one = 0;
  unsigned other = 0;
  return ::ioctl(first, TIOCGDEV, &one) == 0 && ::ioctl(second, TIOCGDEV, &other) == 0 && one == other;
}

}  // namespace

ConsoleStyle detect_style(bool no_color, bool quiet) {
  ConsoleStyle style;
  const char* kind = std::getenv("TERM");
  const bool is_dumb = kind != nullptr && std::string_view(kind) == "dumb";
  style.is_terminal = ::isatty(STDERR_FILENO) == 1 && !is_dumb;
  const char* no_color_env = std::getenv("NO_COLOR");
  style.color = style.is_terminal && !no_color && (no_color_env == nullptr || *no_color_env == '\0');
  style.quiet = quiet;
  return style;
}

std::string fitted(const std::string& line, std::size_t columns) {
  std::size_t characters = 0;
  for (std::size_t at = 0; at < line.size(); ++at) {
    const bool is_begin = (static_cast<unsigned char>(line[at]) & 0xC0) != 0x80;
    if (is_begin && ++characters > columns) return line.substr(0, at);
  }
  return line;
}

Console::Console(boost::asio::io_context& io, ConsoleStyle style)
    : io_(io),
      style_(style),
      out_(io, STDOUT_FILENO, [this] { on_turn(); }),
      err_(io, STDERR_FILENO, [this] { on_turn(); }),
      is_one_terminal_(are_one_terminal(STDOUT_FILENO, STDERR_FILENO)) {}

void Console::result(const std::string& line) {
  output(line + "\n", nullptr);
}

void Console::output(std::string lines, std::function<void()> on_written) {
  output(keeper::Stream::kOut, std::move(lines), std::move(on_written));
}

void Console::output(keeper::Stream stream, std::string text, std::function<void()> on_written) {
  OutputSink& to = sink(stream);
  if (to.is_terminal()) text = for_terminal(text, Steering::kColors);
  const bool is_shown_by_reader = &to == &out_ && style_.is_terminal && to.has_reader();
  if (is_shown_by_reader) {
    clear_live();
    is_held_ = true;
  }
  if (&to == &err_) {
    clear_live();
    if (!text.empty()) has_open_line_ = text.back() != '\n';
    text.insert(0, std::exchange(owed_, {}));
  }
  to.write(std::move(text), std::move(on_written));
}

void Console::on_turn() {
  tell_loss();
  draw_live();
  if (when_drained_ && drained()) boost::asio::post(io_, std::exchange(when_drained_, nullptr));
}

/// Of what stdout does not take. Of stderr there is nowhere to tell it but in the exit code.
void Console::tell_loss() {
  if (out_.error() == 0 || std::exchange(is_loss_told_, true)) return;
  complain("warning", "cannot write to stdout: " + std::generic_category().message(out_.error()) +
                          "; no more is written there. All of it is kept in the run's folder: sgd-launch logs and "
                          "sgd-launch metrics show it");
}

void Console::give_up() {
  out_.give_up();
  err_.give_up();
}

void Console::when_drained(std::function<void()> handler) {
  if (drained()) return boost::asio::post(io_, std::move(handler));
  when_drained_ = std::move(handler);
}

void Console::narrate(const std::string& line, bool is_trouble) {
  if (!style_.quiet || is_trouble) block(for_terminal(line, Steering::kNone) + "\n");
}

void Console::complain(const std::string& label, const std::string& line) {
  const char* color = label == "warning" ? "\x1b[33m" : "\x1b[31m";
  const std::string said = for_terminal(line, Steering::kNone);
  block(style_.color ? "sgd-launch: " + std::string(color) + label + ":\x1b[0m " + said + "\n"
                     : "sgd-launch: " + label + ": " + said + "\n");
}

void Console::block(const std::string& text) {
  clear_live();
  const std::string whole = std::exchange(has_open_line_, false) ? "\n" + text : text;
  if (err_.drained()) {
    (void)offer(whole, Rest::kOfLine);  // Ignoring what a terminal without room has lost.
  } else if (waiting_bytes_ + whole.size() <= kWaitingBytesMax) {
    waiting_bytes_ += whole.size();
    err_.write(whole, [this, size = whole.size()] { waiting_bytes_ -= size; });
  }
  draw_live();
}

void Console::status(const std::string& line) {
  is_held_ = false;
  if (!style_.is_terminal || style_.quiet) return;
  status_ = for_terminal(line, Steering::kNone);
  clear_live();
  draw_live();
}

void Console::bars(const std::vector<std::string>& lines) {
  if (!style_.is_terminal) return;
  clear_live();
  bars_.clear();
  for (const std::string& line : lines) bars_.push_back(for_terminal(line, Steering::kNone));
  draw_live();
}

/// False: nothing of `text` is written. What is begun is owed: a line, or `text` as a whole.
bool Console::offer(const std::string& text, Rest owed) {
  const std::string whole = std::exchange(owed_, {}) + text;
  const std::size_t begin = whole.size() - text.size();
  const std::size_t taken = err_.offer(whole);
  std::size_t end = begin;
  if (taken > begin) {
    const bool is_line_over = owed == Rest::kOfLine && whole[taken - 1] == '\n';
    const std::size_t newline = owed == Rest::kAll ? std::string::npos : whole.find('\n', taken);
    end = is_line_over ? taken : std::min(newline, whole.size() - 1) + 1;
  }
  owed_ = whole.substr(std::min(taken, end), end - std::min(taken, end));
  return taken > begin;
}

/// They are drawn only while nothing waits, so that this comes before all that is written next.
void Console::clear_live() {
  if (live_lines_ == 0) return;
  owed_ += "\r\x1b[K";
  for (std::size_t line = 1; line < live_lines_; ++line) owed_ += "\x1b[A\r\x1b[K";
  live_lines_ = 0;
  (void)offer("", Rest::kAll);  // Ignoring: what is not written now stays owed.
}

/// The cursor stays at the end of the last of them. Those for which there is no room are drawn at the next turn.
void Console::draw_live() {
  if (live_lines_ > 0 || has_open_line_ || is_held_ || !drained() || !style_.is_terminal) return;
  const winsize size = terminal_size();
  const std::size_t room = std::clamp<std::size_t>(size.ws_row / 2, 1, kBarsMax);
  std::string text;
  const auto add = [&](const std::string& line) {
    text += (live_lines_++ == 0 ? "" : "\n") + fitted(line, size.ws_col - 1U);
  };
  for (std::size_t bar = 0; bar < std::min(room, bars_.size()); ++bar) add(bars_[bar]);
  if (!status_.empty()) add(status_);
  if (!offer(text, Rest::kAll)) live_lines_ = 0;
}

}  // namespace sgd::cli
