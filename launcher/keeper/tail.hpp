#pragma once
// The last lines of a rank's output, for the message about its failure, and the last of them that may be a JSON object,
// for a line of metrics. Keeps a few short strings whatever the rank writes; a long line keeps its begin.

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace sgd::keeper {

class Tail {
 public:
  /// Lines with or without a newline at the very end. `goes_on`: the first one is the rest of a line that was split.
  void add(std::string_view lines, bool goes_on = false);
  [[nodiscard]] std::vector<std::string> lines() const { return {lines_.begin(), lines_.end()}; }
  /// The last of the last lines that begins with {, at most kCutObjectBytesMax of it; empty: none does.
  [[nodiscard]] std::string last_object() const;

 private:
  std::deque<std::string> lines_;  ///< At most kTailLines, oldest first, without newlines.
  std::string object_;
  std::size_t lines_since_ = 0;  ///< Its own counts.
};

/// The last lines of a file from `offset` on, at most kTailLines of at most kTailLineBytesMax.
[[nodiscard]] std::vector<std::string> file_tail(const std::string& path, std::size_t offset);

}  // namespace sgd::keeper
