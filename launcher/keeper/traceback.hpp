#pragma once
// Finds what a rank's output says of its failure: Python's traceback, its words for a program that it cannot begin, the
// dump of its fault handler, and the last words of a C++ exception. Pure; fed with lines of stderr as they come.
//
//   nothing --"Traceback (most recent call last):"--> in frames --first line that is not indented--> known
//           '--"Fatal Python error: ..."--> known, and its frames follow
// Of an exception group it is the first exception that is none itself.
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
  enum class State { kOutside, kInFrames, kBetween, kInFatal, kInTerminate };

  [[nodiscard]] bool enter_group(std::string_view& line);
  void add_line(std::string_view line, double now_s);
  [[nodiscard]] bool begins(std::string_view line, double now_s);
  void end_with(std::string_view line, double now_s);
  void keep(std::string_view type, std::string_view message, double now_s);

  State state_ = State::kOutside;  ///< kBetween: two parts of a group.
  bool is_in_group_ = false;
  bool is_told_ = false;  ///< What the group is of is found.
  std::vector<std::string> frames_;
  RankError found_;
  int lines_since_ = 0;
};

/// A line, with its newline or without, that is the first of a traceback.
[[nodiscard]] bool begins_traceback(std::string_view line);

/// "torch.OutOfMemoryError: no room" as type and message; the type is empty where it is no exception's.
[[nodiscard]] RankError split_exception(std::string_view line);

}  // namespace sgd::keeper
