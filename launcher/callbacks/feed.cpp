#include "launcher/callbacks/feed.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/json/shallow.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::callbacks {

Feed::Feed(std::string name, std::unique_ptr<Sink> sink, std::string reports_path)
    : name_(std::move(name)), sink_(std::move(sink)), source_(std::move(reports_path)) {}

void Feed::advance(Duration budget, bool is_last) {
  const TimePoint now = process::monotonic_now();
  if (is_troubled_ && due_ && now < *due_ && !is_last) return;
  due_.reset();
  const auto is_done = give(now + budget, is_last);
  if (!is_done) return on_error(is_done.error(), is_last);
  if (!is_done.value()) {
    due_ = process::monotonic_now();
    return;
  }
  if (const Status flushed = flush(is_last); !flushed) return on_error(flushed.error(), is_last);
  if (std::exchange(is_troubled_, false)) warn("writes again, and nothing is missing");
  pause_ = kPause;
}

/// Whether everything that is there was given.
Result<bool> Feed::give(TimePoint until, bool is_last) {
  if (!has_begun_) {
    const auto held = sink_->begin();
    if (!held) return held.error();
    source_.seek(held.value());
    has_begun_ = true;
  }
  for (;;) {
    const auto lines = source_.next();
    if (!lines) return lines.error();
    if (lines.value().empty()) return true;
    for (const std::string& line : lines.value()) {
      // A line that is no object, which nothing of ours writes, is an empty report: they are counted.
      Report report = parse_shallow<Report>(line);
      if (!report.is_object()) report = Report::object();
      const auto taken = sink_->add(report);
      if (!taken) return taken.error();
      if (taken.value() == Taken::kYes) continue;
      const auto held = sink_->begin();
      if (!held) return held.error();
      source_.seek(held.value());
      break;
    }
    if (!is_last && process::monotonic_now() >= until) return false;
  }
}

Status Feed::flush(bool is_last) {
  const TimePoint begin = process::monotonic_now();
  if (begin < flush_after_ && !is_last) {
    due_ = flush_after_;
    return {};
  }
  const Status flushed = sink_->flush();
  const TimePoint end = process::monotonic_now();
  flush_after_ = end + (end - begin) * kRest;
  return flushed;
}

void Feed::on_error(const Error& error, bool is_last) {
  has_begun_ = false;
  due_ = process::monotonic_now() + pause_;
  pause_ = std::min(pause_ * 2, kPauseMax);
  if (std::exchange(is_troubled_, true)) return;
  warn(error.message + (is_last ? "" : "; it is tried again, and the run goes on"));
}

void Feed::end(bool succeeded) {
  advance(Duration{0}, true);
  if (!is_troubled_) {
    if (const Status ended = sink_->end(succeeded); !ended) on_error(ended.error(), true);
  }
  if (is_troubled_) {
    source_.seek(0);
    const auto all = source_.left();
    const std::string reports = all.ok() ? fmt::format("the run's {} reports", all.value()) : "the run's reports";
    warn(fmt::format("not all of {} are in {}; they are in the run's metrics.jsonl", reports, sink_->place()));
  }
  const std::string left_out = sink_->left_out();
  if (!left_out.empty()) warn(fmt::format("{}: {}", sink_->place(), left_out));
  sink_.reset();
  due_.reset();
}

std::vector<std::string> Feed::take_warnings() {
  return std::exchange(warnings_, {});
}

}  // namespace sgd::callbacks
