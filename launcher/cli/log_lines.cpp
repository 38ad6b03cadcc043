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

namespace {

/// Where a UTF-8 character or an escape sequence begins that `bytes` end within; their size: nowhere.
std::size_t unfinished_from(std::string_view bytes) {
  constexpr std::size_t kSequenceBytes = 32;
  const std::string_view tail = bytes.substr(bytes.size() - std::min(bytes.size(), kSequenceBytes));
  const std::size_t before = bytes.size() - tail.size();
  if (const std::size_t escape = tail.rfind('\x1b'); escape != std::string_view::npos) {
    const std::string_view sequence = tail.substr(escape + 1);
    const bool is_open =
        sequence.empty() || (sequence.front() == '[' && std::all_of(sequence.begin() + 1, sequence.end(),
                                                                    [](char c) { return c >= 0x20 && c < 0x40; }));
    if (is_open) return before + escape;
  }
  for (std::size_t length = 1; length <= std::min<std::size_t>(3, tail.size()); ++length) {
    const auto byte = static_cast<unsigned char>(tail[tail.size() - length]);
    if (byte < 0x80) break;
    if (byte < 0xC0) continue;  // It goes on a character.
    const std::size_t whole = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return whole > length ? bytes.size() - length : bytes.size();
  }
  return bytes.size();
}

}  // namespace

std::string LogLines::add(std::string_view bytes) {
  held_.append(bytes);
  if (!is_by_line_) {
    std::string whole = held_.substr(0, unfinished_from(held_));
    held_.erase(0, whole.size());
    return whole;
  }
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
  if (held_.empty() || !is_by_line_) return std::exchange(held_, {});
  return prefixed(std::exchange(held_, {}) + "\n", prefix_);
}

}  // namespace sgd::cli
