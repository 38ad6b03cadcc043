#pragma once
// Everything that a person or a pipe reads from us. Results and what ranks write to stdout go to stdout, narration and
// what they write to stderr to stderr, and on a terminal a few live lines are kept below both: bars of ranks, and the
// status line.
//
// Nothing here blocks the event loop (output_sink.hpp). Where stderr's reader does not take the text of ranks, ours
// waits behind it; a terminal that is stopped (Ctrl-S) loses narration beyond that instead of stopping the launcher. It
// never loses half: what takes live lines away, and the end of a line that was begun, come before anything else.

#include <functional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/messages/keeper.hpp"
#include "launcher/cli/output_sink.hpp"

namespace sgd::cli {

struct ConsoleStyle {
  bool is_terminal = false;  ///< Of stderr, and no dumb one: escape sequences and a status line are allowed.
  bool color = false;
  bool quiet = false;  ///< No narration of what goes as it should.
};

[[nodiscard]] ConsoleStyle detect_style(bool no_color, bool quiet);

class Console {
 public:
  Console(boost::asio::io_context& io, ConsoleStyle style);

  /// A line for stdout.
  void result(const std::string& line);
  /// Whole lines of ranks for stdout; `on_written` is called when they are written or given up.
  void output(std::string lines, std::function<void()> on_written);
  /// For one of our streams, as it is: lines, or the begin of one, behind which nothing is drawn.
  void output(keeper::Stream stream, std::string text, std::function<void()> on_written);
  /// A line for stderr; when quiet only if it `is_trouble`. Here and in complain() nothing of it steers a terminal.
  void narrate(const std::string& line, bool is_trouble = false);
  /// A line for stderr, always; `label` ("error", "warning") is coloured on a terminal.
  void complain(const std::string& label, const std::string& line);
  /// A text of several lines for stderr, as it is, always.
  void block(const std::string& text);
  /// Redraws the status line; nothing without a terminal. Empty: takes it away.
  void status(const std::string& line);
  /// Lines above it, on a terminal: those that ranks are writing.
  void bars(const std::vector<std::string>& lines);

  /// True when everything given to it has been written or given up.
  [[nodiscard]] bool drained() const { return out_.drained() && err_.drained(); }
  /// Nothing more is written to a stream whose reader does not take it: what waits is given up.
  void give_up();
  /// Called once when drained.
  void when_drained(std::function<void()> handler);
  [[nodiscard]] const ConsoleStyle& style() const { return style_; }
  [[nodiscard]] bool is_terminal(keeper::Stream stream) const { return sink(stream).is_terminal(); }

 private:
  enum class Rest {
    kOfLine,  ///< Up to the end of the line that was begun.
    kAll,     ///< Of a text that counts only as a whole.
  };

  /// Of one terminal there is one order: what goes to stdout must not come before what takes live lines away.
  [[nodiscard]] OutputSink& sink(keeper::Stream stream) {
    return stream == keeper::Stream::kOut && !is_one_terminal_ ? out_ : err_;
  }
  [[nodiscard]] const OutputSink& sink(keeper::Stream stream) const {
    return stream == keeper::Stream::kOut && !is_one_terminal_ ? out_ : err_;
  }
  void on_turn();
  void tell_loss();
  bool offer(const std::string& text, Rest owed);
  void clear_live();
  void draw_live();

  boost::asio::io_context& io_;
  ConsoleStyle style_;
  OutputSink out_;
  OutputSink err_;
  bool is_one_terminal_;       ///< Behind both.
  bool is_loss_told_ = false;  ///< Of what stdout did not take.
  std::string owed_;           ///< To stderr, before anything else: an erase, or the rest of what was begun.
  std::string status_;
  std::vector<std::string> bars_;
  std::size_t live_lines_ = 0;  ///< That are drawn.
  bool is_held_ =
      false;  ///< What reads our stdout may print on the same terminal: none are drawn until the next status.
  bool has_open_line_ = false;     ///< What was written last is the begin of a line.
  std::size_t waiting_bytes_ = 0;  ///< Of our own text, behind ranks' that stderr does not take.
  std::function<void()> when_drained_;
};

/// The begin of `line`, as far as it fits `columns`: one for each character of it.
[[nodiscard]] std::string fitted(const std::string& line, std::size_t columns);

}  // namespace sgd::cli
