#include "launcher/keeper/traceback.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

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

/// First words of a line before a traceback that ends no program: of threads, objects that are let go, exit handlers,
/// hooks, logging, asyncio.
constexpr std::array<std::string_view, 8> kAsides = {"Exception in thread ",
                                                     "Exception in threading.excepthook",
                                                     "Exception ignored ",
                                                     "Error in atexit.",
                                                     "Error in sys.excepthook",
                                                     "--- Logging error ---",
                                                     "future: <",
                                                     "handle: <"};
constexpr std::array<std::string_view, 3> kLinks = {
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:", "Call stack:"};

/// First words of lines that are no part of a message which may end above them.
constexpr std::array<std::string_view, 8> kNewWords = {
    "  File \"", "Task exception was never retrieved", "DEBUG:", "INFO:", "WARNING:", "ERROR:", "CRITICAL:", "sys:1: "};
/// What a message keeps of its lines, and how many more are taken for its own as long as they are indented.
constexpr int kMessageLinesMax = 12;
constexpr int kMessageLinesReadMax = 1000;
constexpr std::string_view kMoreLines = "...";

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
  const std::string_view first = std::string_view(error.message).substr(0, error.message.find('\n'));
  return first.ends_with(" sub-exception)") || first.ends_with(" sub-exceptions)");
}

bool is_indented(std::string_view line) {
  return line.empty() || line.front() == ' ' || line.front() == '\t';
}

template <std::size_t count>
bool starts_with_one_of(std::string_view line, const std::array<std::string_view, count>& begins) {
  return std::any_of(begins.begin(), begins.end(), [&](std::string_view begin) { return line.starts_with(begin); });
}

/// "Process SpawnProcess-1:", as multiprocessing begins what a child of the rank says of itself.
bool is_of_child(std::string_view line) {
  return line.starts_with("Process ") && line.ends_with(':');
}

/// Where an interpreter that has not begun says why: "/usr/bin/python3: can't open file ...". npos: it does not.
std::size_t no_program_at(std::string_view line) {
  const std::size_t at = std::min(line.find(kNoModule), line.find(kNoFile));
  const bool is_of_program = line.substr(0, at).find(' ') == std::string_view::npos;
  return is_of_program ? at : std::string_view::npos;
}

/// "14:03:07" near the begin, as log lines of every kind have it.
bool has_time(std::string_view line) {
  constexpr std::string_view kShape = "00:00:00";
  constexpr std::size_t kLookedBytes = 40;
  line = line.substr(0, kLookedBytes);
  const auto fits = [](char shape, char letter) {
    return shape == ':' ? letter == ':' : std::isdigit(static_cast<unsigned char>(letter)) != 0;
  };
  return std::search(line.begin(), line.end(), kShape.begin(), kShape.end(),
                     [&](char letter, char shape) { return fits(shape, letter); }) != line.end();
}

/// Something else than one more line of a message: a traceback of any kind, a log line, a warning, a bar.
bool begins_other(std::string_view line) {
  const auto has = [line](std::string_view words) { return line.find(words) != std::string_view::npos; };
  if (line.ends_with("(most recent call last):") || is_of_child(line)) return true;
  if (starts_with_one_of(line, kLinks) || starts_with_one_of(line, kAsides)) return true;
  if (starts_with_one_of(line, kNewWords) || no_program_at(line) != std::string_view::npos) return true;
  return has_time(line) || has("\r") || has(" NCCL INFO ") || has(" NCCL WARN ") || (has(".py:") && has("Warning: "));
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
    const std::string_view whole = line;
    line = without_rank(whole);
    has_rank_ = line.size() < whole.size();
    add_line(line, now_s);
    note_before(line);
  }
}

void TracebackWatch::note_before(std::string_view line) {
  if (is_indented(line)) return;  // Objects in words have such lines, and so have lists of calls.
  before_ = Before::kNothing;
  if (starts_with_one_of(line, kLinks)) before_ = Before::kLink;
  if (!starts_with_one_of(line, kAsides) && !is_of_child(line)) return;
  before_ = Before::kAside;
  lines_before_aside_ = lines_since_ - 1;
}

/// At the first line of a traceback.
void TracebackWatch::enter_traceback() {
  const Before before = std::exchange(before_, Before::kNothing);
  if (before == Before::kLink) return;  // What it goes on with is an aside, or is none.
  is_aside_ = before == Before::kAside;
  const bool is_recent = lines_before_aside_ <= static_cast<int>(kTailLines);
  is_left_out_ = is_aside_ && !found_.empty() && !found_.is_aside && is_recent;
}

/// At what has no head, and is never an aside.
void TracebackWatch::enter_own() {
  is_aside_ = is_left_out_ = false;
}

/// Takes off the margin that a line of a group has. False: there is nothing in it to look at.
bool TracebackWatch::enter_group(std::string_view& line) {
  if (begins_group(line)) {
    enter_traceback();
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
  if (!enter_group(line)) return;
  if (state_ == State::kInMessage && !goes_on(line)) state_ = State::kOutside;
  if (begins(line, now_s)) return;
  switch (state_) {
    case State::kOutside:
      return;
    case State::kInFrames:
      if (!is_indented(line)) return end_with(line, now_s);
      if (!line.empty()) frames_.push_back(clip(line, kErrorLineBytesMax));
      if (frames_.size() > kErrorFramesMax) frames_.erase(frames_.begin());
      return;
    case State::kInMessage:
      return add_to_message(line);
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
      state_ = State::kOutside;
      if (!line.starts_with(kWhat)) return;
      found_.message = clip(line.substr(kWhat.size()), kErrorTextBytesMax);
      return enter_message();
  }
}

/// Of something that says by one line what it is.
bool TracebackWatch::begins(std::string_view line, double now_s) {
  if (line == kHead || (is_in_group_ && line == kGroupHead)) {
    if (!is_in_group_) enter_traceback();
    state_ = State::kInFrames;
    frames_.clear();
    return true;
  }
  if (line.starts_with(kFatal)) {
    enter_own();
    keep(kFatal.substr(0, kFatal.size() - 2), line.substr(kFatal.size()), now_s);
    found_.frames.clear();
    state_ = State::kInFatal;
    return true;
  }
  if (line.starts_with(kTerminate)) {
    line.remove_prefix(kTerminate.size());
    enter_own();
    frames_.clear();
    keep(line.substr(0, line.find('\'')), "", now_s);
    state_ = State::kInTerminate;
    return true;
  }
  if (state_ != State::kOutside) return false;
  if (line.starts_with("  File \"") && before_ == Before::kNothing) {  // A program that is no Python: none was run.
    enter_own();
    frames_ = {clip(line, kErrorLineBytesMax)};
    state_ = State::kInFrames;
    return true;
  }
  const std::size_t at = no_program_at(line);
  if (at == std::string_view::npos) return false;
  enter_own();
  frames_.clear();
  const bool is_module = line.substr(at).starts_with(kNoModule);
  keep(is_module ? "ModuleNotFoundError" : "FileNotFoundError", line.substr(at + 2), now_s);
  return true;
}

void TracebackWatch::end_with(std::string_view line, double now_s) {
  state_ = State::kOutside;
  const RankError error = split_exception(line);
  keep(error.type, error.message, now_s);
  if (!is_left_out_) enter_message();
}

/// Behind the first line of a message.
void TracebackWatch::enter_message() {
  state_ = State::kInMessage;
  message_lines_ = 1;
  has_message_rank_ = has_rank_;
}

/// False: `line` is no more of the message.
bool TracebackWatch::goes_on(std::string_view line) const {
  const bool is_blank = line.find_first_not_of(" \t") == std::string_view::npos;
  if (is_blank || has_rank_ != has_message_rank_) return false;
  return message_lines_ < (is_indented(line) ? kMessageLinesReadMax : kMessageLinesMax) && !begins_other(line);
}

/// A message of hundreds of lines (of each parameter that does not fit its model) does not push its own error out.
void TracebackWatch::add_to_message(std::string_view line) {
  if (is_indented(line)) lines_since_ = 0;
  const int lines = message_lines_++;
  if (lines > kMessageLinesMax) return;
  const std::size_t room = kErrorTextBytesMax - found_.message.size();
  if (room > 0) found_.message += "\n" + clip(lines < kMessageLinesMax ? line : kMoreLines, room - 1);
}

void TracebackWatch::keep(std::string_view type, std::string_view message, double now_s) {
  if (is_left_out_) {  // As if it had not been written: an error stays among the last lines, however many threads end.
    lines_since_ = lines_before_aside_;
    frames_.clear();
    return;
  }
  found_.type = clip(type, kErrorLineBytesMax);
  found_.message = clip(message, kErrorTextBytesMax);
  found_.frames = std::move(frames_);
  frames_.clear();
  found_.at_s = now_s;
  found_.is_aside = is_aside_;
  lines_since_ = 0;
}

RankError TracebackWatch::error() const {
  return lines_since_ <= static_cast<int>(kTailLines) ? found_ : RankError{};
}

}  // namespace sgd::keeper
