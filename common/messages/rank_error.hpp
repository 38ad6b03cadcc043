#pragma once
// What a rank said of its own failure before it ended: the record that torch's @record leaves, or the traceback that
// Python printed. Part of other messages.

#include <string>
#include <vector>

#include "common/base/ids.hpp"

namespace sgd {

inline constexpr std::size_t kErrorFramesMax = 12;
inline constexpr std::size_t kErrorLineBytesMax = 400;
inline constexpr std::size_t kErrorTextBytesMax = 4 << 10;

struct RankError {
  std::string type;                 ///< "ValueError"; empty where only a text is known.
  std::string message;              ///< Without the type; of several lines where it has them.
  std::vector<std::string> frames;  ///< The last lines of its traceback, at most kErrorFramesMax.
  double at_s = 0;                  ///< Of the node's wall clock.
  bool is_aside = false;            ///< Of a thread, a __del__, an exit handler: it has ended no program by itself.
  [[nodiscard]] bool empty() const { return type.empty() && message.empty(); }
};

/// A rank that had failed, and had not ended, when another one ended.
struct OtherError {
  Rank rank = 0;
  RankError error;
  std::string gpu = {};  ///< Of its own, that has failed under it: as its agent names it, not as it says itself.
};

}  // namespace sgd
