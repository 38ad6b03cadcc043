#pragma once
// Finds what a rank's output says of its failure: Python's traceback, its words for a program that it cannot begin, the
// dump of its fault handler, and the last words of a C++ exception. Pure; fed with lines of stderr as they come.
//
//   nothing --"Traceback (most recent call last):"--> in frames --first line that is not indented--> known, in message
//           '--"Fatal Python error: ..."--> known, and its frames follow
// A message may have several lines. Nobody can tell its next ones from what somebody else writes behind it, so few are
// taken, and only those that come at once and do not begin anything of their own (in message).
// Of an exception group it is the first exception that is none itself.
// Python also prints tracebacks of what ends no program: a thread's, a __del__'s, an exit handler's, told by the line
// before them. Such an aside counts where nothing else is found.
// What was said long ago is not why a rank ends now: an error counts while it is among the last lines.

#include <string_view>

#include "common/messages/rank_error.hpp"

namespace sgd::keeper {

class TracebackWatch {
 public:
  /// Whole lines, or the last one without its newline. `now_s`: of the wall clock.
  void add(std::string_view lines, double now_s);
  /// Empty: none.
  [[nodiscard]] RankError error() const;

 private:
  enum class State { kOutside, kInFrames, kInMessage, kBetween, kInFatal, kInTerminate };
  enum class Before {
    kNothing,  ///< What comes next is told by itself.
    kAside,    ///< The head of what ends nothing.
    kLink,     ///< Between two tracebacks of one error, or a list of calls below one.
  };

  [[nodiscard]] bool enter_group(std::string_view& line);
  void add_line(std::string_view line, double now_s);
  void note_before(std::string_view line);
  void enter_traceback();
  void enter_own();
  [[nodiscard]] bool begins(std::string_view line, double now_s);
  void end_with(std::string_view line, double now_s);
  void enter_message();
  [[nodiscard]] bool goes_on(std::string_view line) const;
  void add_to_message(std::string_view line);
  void keep(std::string_view type, std::string_view message, double now_s);

  State state_ = State::kOutside;  ///< kBetween: two parts of a group.
  bool is_in_group_ = false;
  bool is_told_ = false;              ///< What the group is of is found.
  Before before_ = Before::kNothing;  ///< Of the last line that is neither empty nor indented.
  bool is_aside_ = false;             ///< The traceback that is read.
  bool is_left_out_ = false;          ///< It is an aside, and what is no aside is among the last lines.
  bool has_rank_ = false;             ///< The line that is read has PyTorch's "[rank0]: " in front,
  bool has_message_rank_ = false;     ///< and so has the first one of the message.
  int message_lines_ = 0;             ///< That were read, also those that are not kept.
  std::vector<std::string> frames_;
  RankError found_;
  int lines_since_ = 0;
  int lines_before_aside_ = 0;  ///< lines_since_ at its head.
};

/// A line, with its newline or without, that is the first of a traceback.
[[nodiscard]] bool begins_traceback(std::string_view line);

/// "torch.OutOfMemoryError: no room" as type and message; the type is empty where it is no exception's.
[[nodiscard]] RankError split_exception(std::string_view line);

}  // namespace sgd::keeper
