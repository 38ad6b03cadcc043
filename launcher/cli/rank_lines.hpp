#pragma once
// What ranks write, on its way to people and pipes: "rank: " or the job's own prefix in front of each line, equal lines
// of several ranks as one, JSON where that is asked for, and lines that are still being written. Pure: the time is an
// argument, and what is to be written comes back.
//
//   whole lines --equal ones wait kFoldWait for each other--> pieces to be written
//               '--a traceback, with what its rank says right behind it, is one piece: it stays together, and is equal
//                  to another one as a whole or not at all
//   a line that goes on: a bar is a line of the live region (a terminal), or its frames come once in kFrameWait;
//                        anything else is a question: it is written, and what follows is written behind it
//   with nothing in front of lines: those that are too long for one chunk pass long_lines.hpp first

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/time.hpp"
#include "common/messages/keeper.hpp"
#include "launcher/cli/long_lines.hpp"

namespace sgd::cli {

struct LineStyle {
  std::string prefix = "${rank}: ";  ///< ${rank}, ${local_rank}, ${role_name}, ${hostname}, ${time}, ${stream}.
  std::string role;
  std::string hostname;                      ///< Of all ranks,
  std::function<std::string(Rank)> host_of;  ///< or of each.
  bool has_time = false;                     ///< In front of the prefix.
  bool is_json = false;                      ///< An object a line, and all of them to stdout.
  int ranks = 1;                             ///< So many write; 1: nothing is folded. 0: it is not wanted.
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool has_live_region = true;  ///< Bars are drawn where the stream is a terminal.
  bool is_utf8 = true;          ///< Else nothing of ours is beyond ASCII.
};

/// For one of our own streams: whole lines, or the begin of one.
struct RankText {
  keeper::Stream stream = keeper::Stream::kOut;
  std::string text;
};

class RankLines {
 public:
  /// How long a line waits for the same line of other ranks.
  static constexpr Duration kFoldWait = std::chrono::milliseconds(50);
  /// So much at a time is no talk that people read: nothing of it waits.
  static constexpr std::size_t kFoldBytesMax = 16 << 10;
  /// A traceback goes on until its rank is quiet for kFoldWait, but no longer than this, nor beyond kFoldBytesMax.
  static constexpr Duration kTracebackWait = std::chrono::seconds(1);
  /// Without a terminal: from one frame of a bar to the next.
  static constexpr Duration kFrameWait = std::chrono::seconds(10);

  RankLines(LineStyle style, std::function<int(Rank)> local_rank)
      : style_(std::move(style)), local_rank_(std::move(local_rank)) {}

  /// Whole lines of a rank. `unix_s`: the wall clock.
  void add(TimePoint now, double unix_s, const keeper::OutputHead& head, std::string_view lines,
           std::vector<RankText>& out);
  /// A line that it is writing.
  void add_open(TimePoint now, double unix_s, const keeper::OutputHead& head, std::string_view line,
                std::vector<RankText>& out);
  /// What has waited long enough, or with `all` whatever waits.
  void flush(TimePoint now, bool all, std::vector<RankText>& out);
  [[nodiscard]] std::optional<TimePoint> next_flush() const;
  /// Bars on a terminal, as they stand: for the live region.
  [[nodiscard]] std::vector<std::string> bars() const;
  /// A question stands on a terminal: nothing may be drawn behind it.
  [[nodiscard]] bool is_asking() const { return questions_[0].bytes > 0 || questions_[1].bytes > 0; }

 private:
  struct Held {
    keeper::Stream stream = keeper::Stream::kOut;
    std::string lines;  ///< One, or those of a traceback.
    std::set<Rank> ranks;
    double unix_s = 0;
    TimePoint due;
    std::optional<TimePoint> ends_by;  ///< Of a traceback: nothing is added to it from here on.
  };
  struct Question {
    Rank rank = -1;
    keeper::Stream stream = keeper::Stream::kOut;
    std::size_t bytes = 0;  ///< Of its line that are written; 0: there is none.
  };
  using RankStream = std::pair<Rank, keeper::Stream>;

  [[nodiscard]] bool is_bare() const { return style_.prefix.empty() && !style_.has_time && !style_.is_json; }
  void add_lines(TimePoint now, double unix_s, const keeper::OutputHead& head, std::string_view lines,
                 std::vector<RankText>& out);
  void add_pieces(TimePoint now, const std::vector<LongLines::Piece>& pieces, std::vector<RankText>& out);
  void flush_held(TimePoint now, bool all, std::vector<RankText>& out);
  void hold(TimePoint now, double unix_s, const keeper::OutputHead& head, std::string_view line);
  [[nodiscard]] bool continue_traceback(TimePoint now, const keeper::OutputHead& head, std::string_view line);
  void join_equal_tracebacks();
  void write(keeper::Stream stream, const std::set<Rank>& ranks, double unix_s, std::string_view lines,
             std::vector<RankText>& out);
  [[nodiscard]] std::string prefix(keeper::Stream stream, const std::set<Rank>& ranks, double unix_s) const;
  [[nodiscard]] std::string json(keeper::Stream stream, Rank rank, double unix_s, std::string_view line) const;
  /// Whose lines share a cursor.
  [[nodiscard]] Question& question_of(keeper::Stream stream);
  [[nodiscard]] bool is_terminal(keeper::Stream stream) const {
    return stream == keeper::Stream::kOut ? style_.out_is_terminal : style_.err_is_terminal;
  }
  [[nodiscard]] static std::string& text_of(keeper::Stream stream, std::vector<RankText>& out);

  LineStyle style_;
  std::function<int(Rank)> local_rank_;
  LongLines long_lines_;  ///< Of bare lines.
  std::deque<Held> held_;
  std::size_t tracebacks_ = 0;  ///< Among them.
  Question questions_[2];
  std::map<RankStream, std::string> bars_;
  std::map<RankStream, TimePoint> frames_at_;  ///< Of bars without a terminal: when the next one may be written.
};

/// "0-3,7".
[[nodiscard]] std::string rank_list(const std::set<Rank>& ranks);

}  // namespace sgd::cli
