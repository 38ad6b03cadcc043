#include "launcher/cli/log_lines.hpp"

#include <algorithm>
#include <utility>

#include "launcher/keeper/console_lines.hpp"

namespace sgd::cli {

std::string prefixed(std::string_view lines, std::string_view prefix) {
  std::string text;
  text.reserve(lines.size() + lines.size() / 8 + prefix.size());
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    text.append(prefix).append(lines.substr(0, end));
    lines.remove_prefix(end);
  }
  return text;
}

std::string LogLines::add(std::string_view bytes) {
  if (prefix_.empty()) return std::string(bytes);
  held_.append(bytes);
  keeper::ConsoleCut cut;
  keeper::cut_lines(held_, kLogLineBytesMax, cut);
  std::string text;
  for (const keeper::ConsolePiece& piece : cut.pieces) {
    text += prefixed(piece.bytes, prefix_);
    if (piece.split) text += keeper::kSplitMark;
  }
  held_ = std::string(cut.rest);
  return text;
}

std::string LogLines::rest() {
  if (held_.empty()) return {};
  return prefixed(std::exchange(held_, {}) + "\n", prefix_);
}

}  // namespace sgd::cli
