#pragma once
// A rank's log on its way to stdout: whole lines with "rank: " in front, whatever pieces it comes in. A line that is
// longer than kLogLineBytesMax goes in parts, each marked as the console does it, so that a file without newlines costs
// no more memory or time than any other. Without a prefix the bytes go as they are, and what a terminal takes as one, a
// character or an escape sequence, goes whole.

#include <string>
#include <string_view>
#include <utility>

namespace sgd::cli {

inline constexpr std::size_t kLogLineBytesMax = 64 << 10;

/// `lines`, each with `prefix` in front.
[[nodiscard]] std::string prefixed(std::string_view lines, std::string_view prefix);

class LogLines {
 public:
  /// "3: " for rank 3; empty: nothing is put in front, and lines are not waited for.
  explicit LogLines(std::string prefix = {}) : prefix_(std::move(prefix)), is_by_line_(!prefix_.empty()) {}
  /// Whole lines, with nothing in front: that is somebody else's.
  [[nodiscard]] static LogLines bare_lines() {
    LogLines lines;
    lines.is_by_line_ = true;
    return lines;
  }

  /// What can be printed now that these bytes are here.
  [[nodiscard]] std::string add(std::string_view bytes);
  /// Bytes that wait for the end of their line, character or sequence.
  [[nodiscard]] std::size_t held() const { return held_.size(); }
  /// They never had been here.
  void forget_held() { held_.clear(); }
  /// The last line of a log that has ended without a newline.
  [[nodiscard]] std::string rest();

 private:
  std::string prefix_;
  bool is_by_line_ = false;
  std::string held_;
};

}  // namespace sgd::cli
