#pragma once
// One of our own streams, written without blocking the event loop: in pieces that its reader has room for. What it has
// not taken waits in a queue that the output window of the keepers bounds (bytes are acknowledged when they are
// written). A reader that has gone away ends writing, never the run; so does what cannot be written (a full disk), but
// that is remembered, so that it is told.

#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace sgd::cli {

class OutputSink {
 public:
  /// `on_turn` is called after each turn in which something was taken, or given up.
  OutputSink(boost::asio::io_context& io, int fd, std::function<void()> on_turn);

  [[nodiscard]] bool is_terminal() const { return is_terminal_; }
  /// A program may read it (`| tee`), and print it on our terminal; false: it is a file, or nobody's.
  [[nodiscard]] bool has_reader() const { return is_pollable_; }
  /// `on_written` is called when the bytes are written or given up; may be empty.
  void write(std::string bytes, std::function<void()> on_written);
  /// As much of `text` as there is room for now, before what waits: how many bytes of it. The rest is dropped.
  std::size_t offer(std::string_view text) const;
  /// Everything given to it has been written or given up.
  [[nodiscard]] bool drained() const { return queue_.empty(); }
  /// Nothing more is written: what waits is given up.
  void give_up();
  /// Why something could not be written that a reader may miss (ENOSPC); 0: nothing of that kind.
  [[nodiscard]] int error() const { return error_; }

 private:
  struct Piece {
    std::string bytes;
    std::size_t written = 0;
    std::function<void()> on_written;
  };

  void flush();
  bool write_some(Piece& piece);
  void close_for(int error);
  void finish_piece();
  void wait_writable();

  boost::asio::io_context& io_;
  int fd_;
  std::function<void()> on_turn_;
  boost::asio::posix::stream_descriptor watched_;
  bool is_terminal_ = false;
  bool is_pollable_ = false;  ///< Not a regular file.
  bool is_closed_ = false;
  bool is_waiting_ = false;
  int error_ = 0;
  std::deque<Piece> queue_;
};

/// A sink of this process has an error(): the process has not done all that it was asked for.
[[nodiscard]] bool has_lost_output();

}  // namespace sgd::cli
