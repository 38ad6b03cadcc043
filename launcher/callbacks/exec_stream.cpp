#include "launcher/callbacks/exec_stream.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "common/json/shallow.hpp"

namespace sgd::callbacks {
namespace {

/// Always of one length, so that it is written over in place.
constexpr const char* kGivenFormat = "{{\"reports\":{:>19},\"events\":{:>19}}}\n";

}  // namespace

ExecStream::ExecStream(const std::string& run_dir, const nlohmann::json& callback, std::string place)
    : filter_(callback),
      has_events_(read_or(callback, "events", true)),
      reports_(run_dir + "/metrics.jsonl"),
      events_(run_dir + "/events.jsonl"),
      place_(std::move(place)) {}

Status ExecStream::open() {
  if (!file_) file_.reset(::open(place_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!file_) return system_error("cannot open " + place_);
  if (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return Error{place_ + " is in use by another sgd-launch", EWOULDBLOCK};
  std::array<char, 256> text{};
  const ssize_t count = ::pread(file_.get(), text.data(), text.size(), 0);
  if (count < 0) return system_error("cannot read " + place_);
  const auto given = nlohmann::json::parse(text.begin(), text.begin() + count, nullptr, false);
  reports_given_ = read_or(given, "reports", std::int64_t{0});
  events_given_ = read_or(given, "events", std::int64_t{0});
  reports_.seek(reports_given_);
  events_.seek(events_given_);
  return {};
}

/// Numbers are those of the lines in their file, from 1.
Status ExecStream::take(LineSource& source, bool is_event) {
  auto lines = source.next();
  if (!lines) return lines.error();
  std::int64_t number = source.passed() - static_cast<std::int64_t>(lines.value().size());
  for (const std::string& text : lines.value()) {
    Report line = {{"type", is_event ? "event" : "report"}, {"line", ++number}};
    const Report content = parse_shallow<Report>(text);
    if (content.is_object()) line.update(is_event ? content : filter_.of(content));
    lines_.push_back({is_event, dump_text(line) + "\n"});
  }
  return {};
}

Status ExecStream::read() {
  while (lines_.size() < kAheadLines) {
    const std::size_t before = lines_.size();
    if (has_events_)
      if (const Status taken = take(events_, true); !taken) return taken;
    if (const Status taken = take(reports_, false); !taken) return taken;
    if (lines_.size() == before) break;
  }
  return {};
}

Status ExecStream::save() const {
  const std::string text = fmt::format(kGivenFormat, reports_given_, events_given_);
  if (::pwrite(file_.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return system_error("cannot write " + place_);
  return {};
}

Status ExecStream::given() {
  const Line& line = lines_.front();
  ++(line.is_event ? events_given_ : reports_given_);
  on_the_way_.push_back({line.is_event, line.text.size()});
  on_the_way_bytes_ += line.text.size();
  lines_.pop_front();
  while (on_the_way_bytes_ - on_the_way_.front().bytes >= kOnTheWayBytes) {
    on_the_way_bytes_ -= on_the_way_.front().bytes;
    on_the_way_.pop_front();
  }
  return save();
}

Status ExecStream::take_back(std::size_t bytes) {
  for (std::size_t back = 0; back < bytes && !on_the_way_.empty(); on_the_way_.pop_back()) {
    const Given& last = on_the_way_.back();
    --(last.is_event ? events_given_ : reports_given_);
    ++counted_;
    back += last.bytes;
  }
  return save();
}

std::int64_t ExecStream::left() {
  if (const auto reports = reports_.left()) counted_ += reports.value();
  if (const auto events = has_events_ ? events_.left() : Result<std::int64_t>(0)) counted_ += events.value();
  return counted_ + static_cast<std::int64_t>(lines_.size());
}

}  // namespace sgd::callbacks
