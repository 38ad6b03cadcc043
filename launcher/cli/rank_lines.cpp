#include "launcher/cli/rank_lines.hpp"

#include <algorithm>
#include <cmath>
#include <ctime>

#include <fmt/format.h>

#include "common/base/replace_all.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/keeper/traceback.hpp"

namespace sgd::cli {
namespace {

using keeper::Stream;

const char* name(Stream stream) {
  return stream == Stream::kOut ? "stdout" : "stderr";
}

/// "14:03:07.251" of this machine's day.
std::string clock_time(double unix_s) {
  const auto whole = static_cast<std::time_t>(std::floor(unix_s));
  std::tm parts{};
  if (::localtime_r(&whole, &parts) == nullptr) return {};
  const int milliseconds = static_cast<int>((unix_s - std::floor(unix_s)) * 1e3);
  return fmt::format("{:02d}:{:02d}:{:02d}.{:03d}", parts.tm_hour, parts.tm_min, parts.tm_sec, milliseconds);
}

}  // namespace

std::string rank_list(const std::set<Rank>& ranks) {
  std::string text;
  for (auto at = ranks.begin(); at != ranks.end();) {
    const Rank first = *at;
    Rank last = first;
    while (++at != ranks.end() && *at == last + 1) last = *at;
    if (!text.empty()) text += ',';
    text += first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
  }
  return text;
}

void RankLines::add(TimePoint now, double unix_s, const keeper::OutputHead& head, std::string_view lines,
                    std::vector<RankText>& out) {
  if (!is_bare()) return add_lines(now, unix_s, head, lines, out);
  std::vector<LongLines::Piece> pieces;
  long_lines_.add(now, unix_s, head, lines, pieces);
  add_pieces(now, pieces, out);
}

void RankLines::add_pieces(TimePoint now, const std::vector<LongLines::Piece>& pieces, std::vector<RankText>& out) {
  for (const LongLines::Piece& piece : pieces) {
    if (!piece.ends_a_line) {
      add_lines(now, piece.unix_s, piece.head, piece.text, out);
      continue;
    }
    text_of(piece.head.stream, out) += '\n';
    question_of(piece.head.stream) = {};
  }
}

void RankLines::add_lines(TimePoint now, double unix_s, const keeper::OutputHead& head, std::string_view lines,
                          std::vector<RankText>& out) {
  bars_.erase({head.rank, head.stream});
  Question& question = question_of(head.stream);
  const bool is_answer = question.bytes > 0 && question.rank == head.rank && question.stream == head.stream;
  const bool may_fold = style_.ranks > 1 && !style_.is_json && question.bytes == 0 && lines.size() <= kFoldBytesMax;
  if (may_fold) {
    while (!lines.empty()) {
      const std::size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
      hold(now, unix_s, head, lines.substr(0, end));
      lines.remove_prefix(end);
    }
    return flush_held(now, false, out);
  }
  flush_held(now, true, out);
  if (question.bytes > 0) {
    std::string& text = text_of(question.stream, out);
    const std::size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    const bool goes_on = is_answer && end > question.bytes;
    text += goes_on ? std::string(lines.substr(question.bytes, end - question.bytes)) : "\n";
    if (goes_on) lines.remove_prefix(end);
    question = {};
  }
  write(head.stream, {head.rank}, unix_s, lines, out);
}

void RankLines::add_open(TimePoint now, double unix_s, const keeper::OutputHead& head, std::string_view line,
                         std::vector<RankText>& out) {
  if (style_.is_json || long_lines_.holds(head)) return;
  if (line.starts_with('\r')) {
    while (line.starts_with('\r')) line.remove_prefix(1);
    while (line.ends_with('\r')) line.remove_suffix(1);
    const std::string frame = prefix(head.stream, {head.rank}, unix_s) + std::string(line);
    if (style_.has_live_region && is_terminal(head.stream)) {
      bars_[{head.rank, head.stream}] = frame;
      return;
    }
    TimePoint& next = frames_at_[{head.rank, head.stream}];
    if (head.stream == Stream::kOut || line.empty() || now < next) return;  // Of stdout every byte comes with its line.
    next = now + kFrameWait;
    flush_held(now, true, out);
    text_of(head.stream, out) += frame + "\n";
    return;
  }
  // In a file or a pipe it would stand twice when another rank writes before it is whole.
  if (style_.ranks != 1 && !is_terminal(head.stream)) return;
  flush_held(now, true, out);
  Question& question = question_of(head.stream);
  const bool goes_on = question.bytes > 0 && question.rank == head.rank && question.stream == head.stream;
  if (goes_on && line.size() < question.bytes) return;
  if (question.bytes > 0 && !goes_on) text_of(question.stream, out) += '\n';
  std::string& text = text_of(head.stream, out);
  text +=
      goes_on ? std::string(line.substr(question.bytes)) : prefix(head.stream, {head.rank}, unix_s) + std::string(line);
  question = {head.rank, head.stream, line.size()};
}

/// Behind what its rank has said before, and not in front of it.
void RankLines::hold(TimePoint now, double unix_s, const keeper::OutputHead& head, std::string_view line) {
  if (continue_traceback(now, head, line)) return;
  if (keeper::begins_traceback(line)) {
    held_.push_back({head.stream, std::string(line), {head.rank}, unix_s, now + kFoldWait, now + kTracebackWait});
    ++tracebacks_;
    return;
  }
  for (auto held = held_.rbegin(); held != held_.rend(); ++held) {
    if (held->ranks.contains(head.rank)) break;
    if (held->stream != head.stream || held->lines != line) continue;
    held->ranks.insert(head.rank);
    return;
  }
  held_.push_back({head.stream, std::string(line), {head.rank}, unix_s, now + kFoldWait, std::nullopt});
}

/// True: it belongs to the traceback that its rank is writing.
bool RankLines::continue_traceback(TimePoint now, const keeper::OutputHead& head, std::string_view line) {
  if (tracebacks_ == 0) return false;
  const auto last = std::find_if(held_.rbegin(), held_.rend(), [&](const Held& held) {
    return held.stream == head.stream && held.ranks.contains(head.rank);
  });
  if (last == held_.rend() || !last->ends_by || now >= last->due) return false;
  if (last->lines.size() + line.size() > kFoldBytesMax) return false;
  last->lines += line;
  last->due = std::min(now + kFoldWait, *last->ends_by);
  return true;
}

/// Those of other ranks that are like the first one held, where nothing of their ranks stands in front of them.
void RankLines::join_equal_tracebacks() {
  Held& first = held_.front();
  std::set<Rank> passed = first.ranks;
  for (std::size_t at = 1; at < held_.size();) {
    const Held& other = held_[at];
    const bool is_equal = other.ends_by && other.stream == first.stream && other.lines == first.lines;
    if (is_equal && !passed.contains(*other.ranks.begin())) {
      first.ranks.insert(*other.ranks.begin());
      passed.insert(*other.ranks.begin());
      held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(at));
      --tracebacks_;
    } else {
      passed.insert(other.ranks.begin(), other.ranks.end());
      ++at;
    }
  }
}

void RankLines::flush(TimePoint now, bool all, std::vector<RankText>& out) {
  std::vector<LongLines::Piece> pieces;
  long_lines_.flush(now, all, pieces);
  add_pieces(now, pieces, out);
  flush_held(now, all, out);
}

void RankLines::flush_held(TimePoint now, bool all, std::vector<RankText>& out) {
  while (!held_.empty()) {
    const Held& first = held_.front();
    const bool is_everybodys = !first.ends_by && static_cast<int>(first.ranks.size()) >= style_.ranks;
    if (!all && now < first.due && !is_everybodys) return;
    if (first.ends_by) {
      join_equal_tracebacks();
      --tracebacks_;
    }
    write(first.stream, first.ranks, first.unix_s, first.lines, out);
    held_.pop_front();
  }
}

std::optional<TimePoint> RankLines::next_flush() const {
  const std::optional<TimePoint> next = long_lines_.next_flush();
  if (held_.empty()) return next;
  return next ? std::min(*next, held_.front().due) : held_.front().due;
}

std::vector<std::string> RankLines::bars() const {
  std::vector<std::string> lines;
  for (const auto& [place, frame] : bars_) lines.push_back(frame);
  return lines;
}

void RankLines::write(Stream stream, const std::set<Rank>& ranks, double unix_s, std::string_view lines,
                      std::vector<RankText>& out) {
  if (lines.empty()) return;
  std::string& text = text_of(style_.is_json ? Stream::kOut : stream, out);
  if (is_bare() && ranks.size() == 1) {
    text += lines;
    return;
  }
  const std::string front = style_.is_json ? std::string() : prefix(stream, ranks, unix_s);
  text.reserve(text.size() + lines.size() + lines.size() / 8 + front.size());
  while (!lines.empty()) {
    const std::size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
    if (style_.is_json)
      text += json(stream, *ranks.begin(), unix_s, lines.substr(0, end));
    else
      text.append(front).append(lines.substr(0, end));
    lines.remove_prefix(end);
  }
}

std::string RankLines::prefix(Stream stream, const std::set<Rank>& ranks, double unix_s) const {
  std::string text = style_.has_time ? clock_time(unix_s) + " " : std::string();
  if (style_.prefix.empty() && ranks.size() == 1) return text;
  const bool is_one = ranks.size() == 1;
  const std::string times = is_one ? "" : fmt::format(" {}{}", style_.is_utf8 ? "×" : "x", ranks.size());
  std::set<Rank> local;
  for (const Rank rank : ranks) local.insert(local_rank_(rank));
  std::string front = style_.prefix;
  const bool has_place = front.find("${rank}") != std::string::npos || front.find("${local_rank}") != std::string::npos;
  const bool has_rank = front.find("${rank}") != std::string::npos;
  replace_all(front, "${rank}", rank_list(ranks) + times);
  replace_all(front, "${local_rank}", rank_list(local) + (has_rank ? "" : times));
  replace_all(front, "${role_name}", style_.role);
  replace_all(front, "${hostname}", style_.host_of && is_one ? style_.host_of(*ranks.begin()) : style_.hostname);
  replace_all(front, "${stream}", name(stream));
  if (front.find("${time}") != std::string::npos) replace_all(front, "${time}", clock_time(unix_s));
  if (!is_one && !has_place) front += times.substr(1) + " ";
  return text + front;
}

std::string RankLines::json(Stream stream, Rank rank, double unix_s, std::string_view line) const {
  if (line.ends_with('\n')) line.remove_suffix(1);
  const nlohmann::ordered_json object = {{"rank", rank}, {"stream", name(stream)}, {"time", unix_s}, {"text", line}};
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

RankLines::Question& RankLines::question_of(Stream stream) {
  const bool share = style_.out_is_terminal && style_.err_is_terminal;
  return questions_[share ? 0 : static_cast<std::size_t>(stream)];
}

std::string& RankLines::text_of(Stream stream, std::vector<RankText>& out) {
  if (out.empty() || out.back().stream != stream) out.push_back({stream, {}});
  return out.back().text;
}

}  // namespace sgd::cli
