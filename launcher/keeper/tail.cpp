#include "launcher/keeper/tail.hpp"

#include <algorithm>
#include <fstream>
#include <utility>

#include "common/messages/keeper.hpp"
#include "launcher/keeper/console_lines.hpp"

namespace sgd::keeper {
namespace {

bool begins_object(std::string_view line) {
  const std::size_t begin = line.find_first_not_of(" \t");
  return begin != std::string_view::npos && line[begin] == '{';
}

}  // namespace

void Tail::add(std::string_view lines, bool goes_on) {
  if (!lines.empty() && lines.back() == '\n')
    lines.remove_suffix(1);
  else if (lines.empty())
    return;
  // From the end: of a big read only the last lines matter.
  std::string_view found[kTailLines];
  std::size_t count = 0;
  bool more = true;
  while (more && count < kTailLines) {
    const std::size_t newline = lines.rfind('\n');
    more = newline != std::string_view::npos;
    found[count++] = more ? lines.substr(newline + 1) : lines;
    if (more) lines = lines.substr(0, newline);
  }
  bool is_rest = goes_on && !more;
  while (lines_.size() + count > kTailLines) lines_.pop_front();
  while (count > 0) {
    std::string_view line = found[--count];
    while (line.ends_with('\r')) line.remove_suffix(1);
    line.remove_prefix(line.rfind('\r') + 1);
    lines_.emplace_back(line.substr(0, character_end(line, kTailLineBytesMax)));
    ++lines_since_;
    if (std::exchange(is_rest, false) || !begins_object(line)) continue;
    object_ = line.substr(0, character_end(line, kCutObjectBytesMax));
    lines_since_ = 1;
  }
}

std::string Tail::last_object() const {
  return lines_since_ <= kTailLines ? object_ : std::string();
}

std::vector<std::string> file_tail(const std::string& path, std::size_t offset) {
  constexpr std::size_t kReadMax = kTailLines * (kTailLineBytesMax + 1);
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<std::size_t>(std::max<std::streamoff>(file ? std::streamoff(file.tellg()) : 0, 0));
  const std::size_t begin = std::max(offset, size > kReadMax ? size - kReadMax : 0);
  if (begin >= size) return {};
  std::string text(size - begin, '\0');
  file.seekg(static_cast<std::streamoff>(begin));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  Tail tail;
  tail.add(text);
  return tail.lines();
}

}  // namespace sgd::keeper
