#pragma once
// Lines of ranks that are longer than the keeper sends as one, where nothing is put in front of lines: their parts are
// joined again, without the keeper's marks, and what other ranks write to that stream waits until the line has ended.
// Pure: the time is an argument, and what is to be written comes back.
//
//   lines ----------------------------------------------> written
//   a part of a line --> written, the line is open --its end, or kPartWait without more of it--> over
//   lines of other ranks while it is open --> wait ---------------- over, or too many wait ----> written
//
// A line that is not waited for any longer is ended by a newline: what comes of it later begins a line of its own.

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/time.hpp"
#include "common/messages/keeper.hpp"

namespace sgd::cli {

class LongLines {
 public:
  /// From one part of a line to the next, where others wait.
  static constexpr Duration kPartWait = std::chrono::seconds(1);
  static constexpr std::size_t kWaitingBytesMax = 4 << 20;

  struct Piece {
    keeper::OutputHead head;
    double unix_s = 0;
    std::string text;          ///< Whole lines, and perhaps a part of one.
    bool ends_a_line = false;  ///< Of a line that has not ended itself; there is no text.
  };

  /// What a rank's chunk says.
  void add(TimePoint now, double unix_s, const keeper::OutputHead& head, std::string_view lines,
           std::vector<Piece>& out);
  /// What has waited long enough, or with `all` whatever waits.
  void flush(TimePoint now, bool all, std::vector<Piece>& out);
  [[nodiscard]] std::optional<TimePoint> next_flush() const;
  /// A line of another rank is open there: nothing of this one may come between.
  [[nodiscard]] bool holds(const keeper::OutputHead& head) const;

 private:
  struct OpenLine {
    keeper::OutputHead head;
    TimePoint ends_by;
  };

  [[nodiscard]] bool has_waiting(keeper::Stream stream) const;
  void give_up(TimePoint now, keeper::Stream stream, std::vector<Piece>& out);
  void release(TimePoint now, std::vector<Piece>& out);

  std::map<keeper::Stream, OpenLine> open_;
  std::deque<Piece> waiting_;
  std::size_t waiting_bytes_ = 0;
};

}  // namespace sgd::cli
