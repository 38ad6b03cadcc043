#include "launcher/cli/long_lines.hpp"

#include <algorithm>
#include <utility>

#include "launcher/keeper/console_lines.hpp"

namespace sgd::cli {
namespace {

/// Appends `lines` to `text` without the marks; returns whether they end within a line. A mark stands behind more bytes
/// than a whole line has, so that what a rank has written itself is not taken for one.
bool take_marks_off(std::string_view lines, std::string& text) {
  bool is_open = false;
  while (!lines.empty()) {
    const std::string_view window = lines.substr(0, keeper::kConsoleLineBytesMax + 1);
    const std::size_t newline = window.rfind('\n');
    const bool is_long = newline == std::string_view::npos;
    const std::size_t end = is_long ? std::min(lines.find('\n'), lines.size() - 1) + 1 : newline + 1;
    std::string_view taken = lines.substr(0, end);
    lines.remove_prefix(end);
    is_open = is_long && taken.ends_with(keeper::kSplitMark);
    if (is_open) taken.remove_suffix(keeper::kSplitMark.size());
    text += taken;
  }
  return is_open;
}

bool is_same_rank(const keeper::OutputHead& one, const keeper::OutputHead& other) {
  return one.rank == other.rank && one.generation == other.generation;
}

}  // namespace

void LongLines::add(TimePoint now, double unix_s, const keeper::OutputHead& head, std::string_view lines,
                    std::vector<Piece>& out) {
  if (holds(head)) {
    waiting_.push_back({head, unix_s, std::string(lines)});
    waiting_bytes_ += lines.size();
    if (waiting_bytes_ > kWaitingBytesMax) return give_up(now, head.stream, out);
    return flush(now, false, out);
  }
  Piece piece{head, unix_s, {}};
  const bool is_open = take_marks_off(lines, piece.text);
  out.push_back(std::move(piece));
  if (is_open)
    open_[head.stream] = {head, now + kPartWait};
  else if (open_.erase(head.stream) > 0)
    release(now, out);
}

void LongLines::flush(TimePoint now, bool all, std::vector<Piece>& out) {
  for (const keeper::Stream stream : {keeper::Stream::kOut, keeper::Stream::kErr}) {
    const auto open = open_.find(stream);
    if (open != open_.end() && (all || now >= open->second.ends_by) && has_waiting(stream)) give_up(now, stream, out);
  }
}

std::optional<TimePoint> LongLines::next_flush() const {
  std::optional<TimePoint> next;
  for (const auto& [stream, open] : open_)
    if (has_waiting(stream)) next = next ? std::min(*next, open.ends_by) : open.ends_by;
  return next;
}

bool LongLines::holds(const keeper::OutputHead& head) const {
  const auto open = open_.find(head.stream);
  return open != open_.end() && !is_same_rank(open->second.head, head);
}

bool LongLines::has_waiting(keeper::Stream stream) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const Piece& piece) { return piece.head.stream == stream; });
}

void LongLines::give_up(TimePoint now, keeper::Stream stream, std::vector<Piece>& out) {
  const auto open = open_.find(stream);
  out.push_back({open->second.head, 0, {}, true});
  open_.erase(open);
  release(now, out);
}

/// In its order, as if it came now: one of them may be the next part of a line.
void LongLines::release(TimePoint now, std::vector<Piece>& out) {
  waiting_bytes_ = 0;
  for (const Piece& piece : std::exchange(waiting_, {})) add(now, piece.unix_s, piece.head, piece.text, out);
}

}  // namespace sgd::cli
