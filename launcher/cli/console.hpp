#pragma once
// Everything that a person or a pipe reads from us. Results and workers' lines go to stdout,
// narration to stderr, and on a terminal one status line is kept below both.
//
// Nothing here blocks the event loop: stdout is written in pieces that its reader has room for,
// and what it has not taken waits in a queue that the output window of the keepers bounds
// (bytes are acknowledged when they are written). A reader that has gone away ends writing,
// never the run.

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace sgd::cli {

struct ConsoleStyle {
  bool is_terminal = false;  ///< Of stderr: status line allowed.
  bool color = false;
  bool quiet = false;  ///< No narration.
};

[[nodiscard]] ConsoleStyle detect_style(bool no_color, bool quiet);

class Console {
 public:
  Console(boost::asio::io_context& io, ConsoleStyle style);

  /// A line for stdout.
  void result(const std::string& line);
  /// Whole lines of ranks for stdout; `on_written` is called when they are written or given up.
  void output(std::string lines, std::function<void()> on_written);
  /// A line for stderr; not when quiet. Here and in complain() nothing of it steers a terminal.
  void narrate(const std::string& line);
  /// A line for stderr, always; `label` ("error", "warning") is coloured on a terminal.
  void complain(const std::string& label, const std::string& line);
  /// A text of several lines for stderr, as it is, always.
  void block(const std::string& text);
  /// Redraws the status line; nothing without a terminal. Empty: takes it away.
  void status(const std::string& line);

  /// True when everything given to stdout has been written or given up.
  [[nodiscard]] bool drained() const { return queue_.empty(); }
  /// Nothing more is written to stdout, whose reader does not take it: what waits is given up.
  void give_up();
  /// Called once when drained.
  void when_drained(std::function<void()> handler);
  [[nodiscard]] const ConsoleStyle& style() const { return style_; }

 private:
  struct Piece {
    std::string bytes;
    std::size_t written = 0;
    std::function<void()> on_written;
  };

  void flush();
  bool write_some(Piece& piece);
  void finish_piece();
  void wait_writable();
  void clear_status();
  void draw_status();
  void write_stderr(const std::string& text);

  boost::asio::io_context& io_;
  ConsoleStyle style_;
  boost::asio::posix::stream_descriptor stdout_;
  bool stdout_is_terminal_ = false;  ///< Whose reader ranks do not steer.
  bool stdout_is_pollable_ = false;  ///< Not a regular file.
  bool stdout_closed_ = false;
  bool waiting_ = false;
  std::deque<Piece> queue_;
  std::string status_;
  bool status_shown_ = false;
  std::function<void()> when_drained_;
};

}  // namespace sgd::cli
