#include "launcher/keeper/traceback.hpp"

#include <algorithm>
#include <cctype>

#include "common/messages/keeper.hpp"
#include "launcher/keeper/console_lines.hpp"

namespace sgd::keeper {
namespace {

constexpr std::string_view kHead = "Traceback (most recent call last):";
constexpr std::string_view kGroupHead = "Exception Group Traceback (most recent call last):";
constexpr std::string_view kFatal = "Fatal Python error: ";
constexpr std::string_view kTerminate = "terminate called after throwing an instance of '";
constexpr std::string_view kWhat = "  what():  ";
constexpr std::string_view kNoModule = ": No module named ";
constexpr std::string_view kNoFile = ": can't open file ";

std::string clip(std::string_view text, std::size_t bytes_max) {
  return std::string(text.substr(0, character_end(text, bytes_max)));
}

/// PyTorch puts "[rank0]: " in front of each line of a traceback once ranks have met.
std::string_view without_rank(std::string_view line) {
  constexpr std::string_view kRank = "[rank";
  if (!line.starts_with(kRank)) return line;
  std::size_t at = kRank.size();
  while (at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])) != 0) ++at;
  if (at == kRank.size() || !line.substr(at).starts_with("]:")) return line;
  line.remove_prefix(at + 2);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

/// The first line of an exception group; all its lines have a margin: "  + ", "  | ", "  +-+---- 1 ----".
bool begins_group(std::string_view line) {
  return line.starts_with("  + ") && line.substr(4) == kGroupHead;
}

bool has_margin(std::string_view line) {
  const std::size_t at = line.find_first_not_of(' ');
  return at != std::string_view::npos && at >= 2 && (line[at] == '|' || line[at] == '+');
}

std::string_view without_margin(std::string_view line) {
  line.remove_prefix(line.find_first_not_of(' ') + 1);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

bool is_group(const RankError& error) {
  return error.message.ends_with(" sub-exception)") || error.message.ends_with(" sub-exceptions)");
}

bool is_indented(std::string_view line) {
  return line.empty() || line.front() == ' ' || line.front() == '\t';
}

/// Of the fork server of Python scripts, below which a forked rank's script runs.
bool is_ours(std::string_view frame) {
  return frame.find("/sgd_launch_server.py\", line ") != std::string_view::npos ||
         frame.find("/sgd_launch_rank.py\", line ") != std::string_view::npos;
}

}  // namespace

bool begins_traceback(std::string_view line) {
  while (line.ends_with('\n') || line.ends_with('\r')) line.remove_suffix(1);
  return line.ends_with(kHead) && (without_rank(line) == kHead || begins_group(without_rank(line)));
}

RankError split_exception(std::string_view line) {
  RankError error;
  const auto is_of_name = [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_' || letter == '.';
  };
  const std::size_t end =
      static_cast<std::size_t>(std::find_if_not(line.begin(), line.end(), is_of_name) - line.begin());
  const std::string_view rest = line.substr(end);
  const bool has_type = end > 0 && std::isdigit(static_cast<unsigned char>(line.front())) == 0 &&
                        (rest.empty() || rest == ":" || rest.starts_with(": "));
  if (has_type) error.type = clip(line.substr(0, end), kErrorLineBytesMax);
  error.message = clip(has_type ? rest.substr(std::min<std::size_t>(2, rest.size())) : line, kErrorTextBytesMax);
  return error;
}

void TracebackWatch::add(std::string_view lines, double now_s) {
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size());
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    add_line(without_rank(line), now_s);
  }
}

/// Takes off the margin that a line of a group has. False: there is nothing in it to look at.
bool TracebackWatch::enter_group(std::string_view& line) {
  if (begins_group(line)) {
    is_in_group_ = true;
    is_told_ = false;
  }
  if (!is_in_group_) return true;
  if (!has_margin(line)) {
    is_in_group_ = false;
    state_ = State::kOutside;
    return true;
  }
  lines_since_ = 0;
  const bool is_plus = line[line.find_first_not_of(' ')] == '+';
  line = without_margin(line);
  if (is_plus && line != kGroupHead) {
    is_told_ = is_told_ || !is_group(found_);
    state_ = State::kBetween;
    return false;
  }
  return !is_told_;
}

void TracebackWatch::add_line(std::string_view line, double now_s) {
  ++lines_since_;
  if (!enter_group(line) || begins(line, now_s)) return;
  switch (state_) {
    case State::kOutside:
      return;
    case State::kInFrames:
      if (!is_indented(line)) return end_with(line, now_s);
      if (!line.empty()) frames_.push_back(clip(line, kErrorLineBytesMax));
      if (frames_.size() > kErrorFramesMax) frames_.erase(frames_.begin());
      return;
    case State::kBetween:  // It was never raised: the frames of its group stay.
      frames_ = found_.frames;
      return end_with(line, now_s);
    case State::kInFatal:
      lines_since_ = 0;
      if (line.starts_with("Extension modules")) state_ = State::kOutside;
      if (line.starts_with("  File ") && !is_ours(line) && found_.frames.size() < kErrorFramesMax)
        found_.frames.push_back(clip(line, kErrorLineBytesMax));
      return;
    case State::kInTerminate:
      if (line.starts_with(kWhat)) found_.message = clip(line.substr(kWhat.size()), kErrorTextBytesMax);
      state_ = State::kOutside;
      return;
  }
}

/// Of something that says by one line what it is.
bool TracebackWatch::begins(std::string_view line, double now_s) {
  if (line == kHead || (is_in_group_ && line == kGroupHead)) {
    state_ = State::kInFrames;
    frames_.clear();
    return true;
  }
  if (line.starts_with(kFatal)) {
    keep(kFatal.substr(0, kFatal.size() - 2), line.substr(kFatal.size()), now_s);
    found_.frames.clear();
    state_ = State::kInFatal;
    return true;
  }
  if (line.starts_with(kTerminate)) {
    line.remove_prefix(kTerminate.size());
    frames_.clear();
    keep(line.substr(0, line.find('\'')), "", now_s);
    state_ = State::kInTerminate;
    return true;
  }
  if (state_ != State::kOutside) return false;
  if (line.starts_with("  File \"")) {  // A program that is no Python: nothing was called yet.
    frames_ = {clip(line, kErrorLineBytesMax)};
    state_ = State::kInFrames;
    return true;
  }
  // An interpreter that has not begun: "/usr/bin/python3: can't open file ...".
  const std::size_t name = line.find(kNoModule);
  const std::size_t file = line.find(kNoFile);
  const bool is_of_program = line.substr(0, std::min(name, file)).find(' ') == std::string_view::npos;
  if (!is_of_program || (name == std::string_view::npos && file == std::string_view::npos)) return false;
  frames_.clear();
  if (name != std::string_view::npos) keep("ModuleNotFoundError", line.substr(name + 2), now_s);
  if (file != std::string_view::npos) keep("FileNotFoundError", line.substr(file + 2), now_s);
  return true;
}

void TracebackWatch::end_with(std::string_view line, double now_s) {
  state_ = State::kOutside;
  const RankError error = split_exception(line);
  keep(error.type, error.message, now_s);
}

void TracebackWatch::keep(std::string_view type, std::string_view message, double now_s) {
  found_.type = clip(type, kErrorLineBytesMax);
  found_.message = clip(message, kErrorTextBytesMax);
  found_.frames = std::move(frames_);
  frames_.clear();
  found_.at_s = now_s;
  lines_since_ = 0;
}

RankError TracebackWatch::error() const {
  return lines_since_ <= static_cast<int>(kTailLines) ? found_ : RankError{};
}

}  // namespace sgd::keeper
