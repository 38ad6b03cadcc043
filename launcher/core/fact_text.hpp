#pragma once
// Texts that a fact carries: the keeper that says them belongs to the run's account, and a fact must fit into a frame.

#include <string>
#include <utility>
#include <vector>

#include "common/messages/keeper.hpp"

namespace sgd::core {

inline constexpr std::size_t kFactTextBytesMax = 16 << 10;

[[nodiscard]] inline std::string clipped(std::string text, std::size_t bytes_max = kFactTextBytesMax) {
  if (text.size() > bytes_max) text.resize(bytes_max);
  return text;
}

/// The last lines of an output.
[[nodiscard]] inline std::vector<std::string> clipped(std::vector<std::string> lines) {
  if (lines.size() > keeper::kTailLines)
    lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(keeper::kTailLines));
  for (std::string& line : lines) line = clipped(std::move(line), keeper::kTailLineBytesMax);
  return lines;
}

[[nodiscard]] inline RankError clipped(RankError error) {
  error.type = clipped(std::move(error.type), kErrorLineBytesMax);
  error.message = clipped(std::move(error.message), kErrorTextBytesMax);
  if (error.frames.size() > kErrorFramesMax) error.frames.resize(kErrorFramesMax);
  for (std::string& line : error.frames) line = clipped(std::move(line), kErrorLineBytesMax);
  return error;
}

}  // namespace sgd::core
