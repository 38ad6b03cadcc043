#include "launcher/keeper/console_lines.hpp"

#include "common/base/assert.hpp"

namespace sgd::keeper {

std::size_t character_end(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text.size();
  std::size_t end = bytes_max;
  // At most three continuation bytes belong to one character; more means that it is no UTF-8.
  for (int i = 0; i < 3 && end > 1; ++i) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0) != 0x80) return end;
    --end;
  }
  return (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80 ? end : bytes_max;
}

void newest_frames(std::string_view bytes, std::string& out) {
  out.clear();
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const bool is_whole = newline != std::string_view::npos;
    std::string_view line = bytes.substr(0, newline);
    bytes.remove_prefix(is_whole ? newline + 1 : bytes.size());
    const bool goes_back = line.ends_with('\r');
    while (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t begin = line.rfind('\r') + 1;  // 0 without one.
    if (!is_whole && (begin > 0 || goes_back)) out += '\r';
    out += line.substr(begin);
    if (!is_whole && goes_back) out += '\r';
    if (is_whole) out += '\n';
  }
}

void cut_lines(std::string_view bytes, std::size_t line_bytes_max, ConsoleCut& out) {
  SGD_ASSERT(line_bytes_max >= 4);
  out.pieces.clear();
  out.rest = {};
  while (!bytes.empty()) {
    // Searched from the end of what may be one line: everything before the newline found is whole lines,
    // and none of them can be over the limit.
    const std::string_view window = bytes.substr(0, line_bytes_max + 1);
    const std::size_t newline = window.rfind('\n');
    if (newline != std::string_view::npos) {
      out.pieces.push_back({bytes.substr(0, newline + 1), false});
      bytes.remove_prefix(newline + 1);
      continue;
    }
    if (bytes.size() <= line_bytes_max) {
      out.rest = bytes;
      return;
    }
    const std::size_t end = character_end(bytes, line_bytes_max);
    out.pieces.push_back({bytes.substr(0, end), true});
    bytes.remove_prefix(end);
  }
}

}  // namespace sgd::keeper
