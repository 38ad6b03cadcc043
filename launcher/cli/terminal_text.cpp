#include "launcher/cli/terminal_text.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>

namespace sgd::cli {
namespace {

/// Of what follows on a line these change the order or begin another line, so that a name reads as something that it
/// is not: U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069.
bool reorders(std::string_view character) {
  const auto at = [&](std::size_t index) { return static_cast<unsigned char>(character[index]); };
  if (character == "\xd8\x9c") return true;
  if (character.size() != 3 || at(0) != 0xe2) return false;
  if (at(1) == 0x80) return at(2) == 0x8e || at(2) == 0x8f || (at(2) >= 0xa8 && at(2) <= 0xae);
  return at(1) == 0x81 && at(2) >= 0xa6 && at(2) <= 0xa9;
}

/// Length of the UTF-8 character that `text` begins with; 0: it is none, or it steers: U+0080 to U+009F (C1 controls),
/// and those that reorder text.
std::size_t character_bytes(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t length = first < 0x80   ? 1
                             : first < 0xc2 ? 0
                             : first < 0xe0 ? 2
                             : first < 0xf0 ? 3
                             : first < 0xf5 ? 4
                                            : 0;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) return 0;
  const bool is_control = first == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0;
  return is_control || reorders(text.substr(0, length)) ? 0 : length;
}

/// Of "ESC [ digits and semicolons m" at the beginning of `text`; 0: it does not begin so.
std::size_t color_bytes(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const std::size_t end = text.find_first_not_of("0123456789;", 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

bool is_harmless(char byte, Steering steering) {
  if (byte == '\n' || byte == '\t') return true;
  if (steering == Steering::kColors && (byte == '\r' || byte == '\b')) return true;
  return static_cast<unsigned char>(byte) >= 0x20 && byte != 0x7f;
}

}  // namespace

std::string for_terminal(std::string_view text, Steering steering) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const std::size_t color = steering == Steering::kColors ? color_bytes(text) : 0;
    const std::size_t character = color > 0 ? color : character_bytes(text);
    const bool is_text = color > 0 || character > 1 || (character == 1 && is_harmless(text[0], steering));
    const std::size_t bytes = std::max<std::size_t>(character, 1);
    if (is_text)
      shown.append(text.substr(0, bytes));
    else
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    text.remove_prefix(is_text ? bytes : 1);
  }
  return shown;
}

}  // namespace sgd::cli
