#pragma once
// The last lines of a rank's output, for the message about its failure. Keeps a few short
// strings whatever the rank writes; a long line keeps its begin.

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace sgd::keeper {

class Tail {
 public:
  /// Lines with or without a newline at the very end.
  void add(std::string_view lines);
  [[nodiscard]] std::vector<std::string> lines() const { return {lines_.begin(), lines_.end()}; }

 private:
  std::deque<std::string> lines_;  ///< At most kTailLines, oldest first, without newlines.
};

/// The last lines of a file from `offset` on, at most kTailLines of at most kTailLineBytesMax.
[[nodiscard]] std::vector<std::string> file_tail(const std::string& path, std::size_t offset);

}  // namespace sgd::keeper
