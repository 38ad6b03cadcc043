#include "launcher/cli/search_program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/write.hpp>

#include "common/json/lenient.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/spawn.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;
using boost::asio::posix::stream_descriptor;

tune::Outcome outcome_named(const std::string& word) {
  for (const tune::Outcome one : {tune::Outcome::kCompleted, tune::Outcome::kStopped, tune::Outcome::kFailed})
    if (word == tune::word_of(one)) return one;
  return tune::Outcome::kCancelled;
}

std::vector<tune::TrialId> trials_of(const Json& event) {
  std::vector<tune::TrialId> trials;
  for (const Json& one : member(event, "trials")) trials.push_back(read_or(Json{{"is", one}}, "is", tune::TrialId{0}));
  return trials;
}

tune::TrialId trial_of(const Json& event) {
  return read_or(event, "trial", tune::TrialId{0});
}

double value_of(const Json& event) {
  return read_or(event, "value", std::numeric_limits<double>::quiet_NaN());
}

struct Pipe {
  process::UniqueFd reads;
  process::UniqueFd writes;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return system_error("cannot make a pipe");
  return Pipe{process::UniqueFd(ends[0]), process::UniqueFd(ends[1])};
}

void set_nonblocking_end(stream_descriptor& end, process::UniqueFd descriptor) {
  end.assign(descriptor.release());
  boost::system::error_code ignored;
  end.non_blocking(true, ignored);
}

}  // namespace

bool SearchScript::is_about(const Json& event) {
  constexpr std::array kNames = {"trials_wanted", "trial_started", "trial_report",       "trial_stopping",
                                 "trial_ended",   "trial_resumed", "experiment_resumed", "run_finished"};
  return std::find(kNames.begin(), kNames.end(), read_or(event, "event", "")) != kNames.end();
}

std::string SearchScript::lines_of(const Json& event) {
  std::string lines = ends_before(event);
  return lines += line_of(event);
}

/// Who decides has done with some trials while they were being stopped: they are not among those that go on, which the
/// experiment names as soon as it does.
std::string SearchScript::ends_before(const Json& event) {
  const std::string what = read_or(event, "event", "");
  std::string ends;
  if (is_resuming_ && what != "trial_resumed") {
    is_resuming_ = false;
    for (const auto& [trial, end] : std::exchange(kept_, {})) ends += end;
  }
  if (what == "run_finished") is_over_ = true;
  // One that was to have more samples while it was being stopped has named nothing yet.
  if (what == "experiment_resumed") is_resuming_ = std::exchange(is_over_, false);
  return ends;
}

std::string SearchScript::line_of(const Json& event) {
  const std::string what = read_or(event, "event", "");
  if (what == "trials_wanted") return tune::next_line(trials_of(event));
  if (what == "trial_report")
    return tune::line_of(
        tune::SearchReport{trial_of(event), read_or(event, "iteration", std::int64_t{0}), value_of(event)});
  if (what == "trial_stopping" && read_or(event, "as", "") == tune::word_of(tune::Outcome::kCancelled) &&
      read_or(event, "why", "") != tune::kKillReason)
    interrupted_.insert(trial_of(event));
  if (what == "trial_resumed") kept_.erase(trial_of(event));
  if (what != "trial_ended") return {};
  const tune::SearchEnd end{trial_of(event), outcome_named(read_or(event, "state", "")),
                            read_or(event, "iteration", std::int64_t{0}), value_of(event)};
  const bool was_interrupted = interrupted_.erase(end.trial) > 0;
  if (!was_interrupted || end.outcome != tune::Outcome::kCancelled) return tune::line_of(end);
  kept_[end.trial] = tune::line_of(end);
  return {};
}

std::string SearchScript::beginning(const std::vector<Json>& past) {
  std::map<tune::TrialId, tune::Values> given;
  for (const Json& event : past)
    if (read_or(event, "event", "") == "trial_started")
      given[trial_of(event)] = tune::Values::parse(dump_text(member(event, "parameters")), nullptr, false);
  std::string lines = tune::hello_line(spec_);
  std::vector<tune::TrialId> owed;
  for (const Json& event : past) {
    lines += ends_before(event);
    if (read_or(event, "event", "") != "trials_wanted") {
      lines += line_of(event);
      continue;
    }
    std::vector<tune::Trial> before;
    for (const tune::TrialId trial : trials_of(event)) {
      if (const auto known = given.find(trial); known != given.end())
        before.push_back({trial, known->second});
      else
        owed.push_back(trial);
    }
    if (!before.empty()) lines += tune::given_line(before);
  }
  if (!owed.empty()) lines += tune::next_line(owed);
  return lines;
}

SearchProgram::SearchProgram(boost::asio::io_context& io, tune::ExperimentSpec spec, Handlers handlers)
    : spec_(std::move(spec)),
      script_(spec_),
      handlers_(std::move(handlers)),
      in_(io),
      out_(io),
      pidfd_(io),
      limit_(io) {}

SearchProgram::~SearchProgram() {
  *is_here_ = false;
  if (has_ended_) return;
  (void)process::pidfd_send_signal(pidfd_.native_handle(), SIGKILL);  // Ignoring: it may have ended.
  constexpr int kReapMs = 1000;
  pollfd ended{pidfd_.native_handle(), POLLIN, 0};
  if (::poll(&ended, 1, kReapMs) > 0) (void)process::wait_exit(ended.fd);  // Ignoring: nobody asks any more how.
}

Status SearchProgram::start(const std::string& log, const std::vector<Json>& past) {
  log_ = std::filesystem::path(log).filename().string();
  auto to = make_pipe();
  if (!to) return to.error();
  auto from = make_pipe();
  if (!from) return from.error();
  const process::UniqueFd errors(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!errors) return system_error("cannot open " + log);
  process::SpawnOptions options;
  options.argv = spec_.search.command;
  options.input_fd = to.value().reads.get();
  options.output_fd = from.value().writes.get();
  options.error_fd = errors.get();
  auto child = process::spawn(options);
  if (!child) return child.error();
  set_nonblocking_end(in_, std::move(to.value().writes));
  set_nonblocking_end(out_, std::move(from.value().reads));
  pidfd_.assign(child.value().pidfd.release());
  has_ended_ = false;
  // Of any length: a program that goes on with a long experiment has left nothing unread yet.
  unread_ = script_.beginning(past);
  flush();
  read();
  wait_for_end();
  return {};
}

void SearchProgram::on_event(const Json& event) {
  if (const std::string lines = script_.lines_of(event); !lines.empty()) write(lines);
}

void SearchProgram::write(const std::string& lines) {
  if (is_over_ || !in_.is_open()) return;
  unread_ += lines;
  if (unread_.size() > kUnreadBytesMax) return fail(fmt::format("has left {} bytes unread", unread_.size()));
  flush();
}

void SearchProgram::flush() {
  if (is_writing_ || unread_.empty() || !in_.is_open()) return;
  is_writing_ = true;
  const auto lines = std::make_shared<std::string>(std::exchange(unread_, {}));
  boost::asio::async_write(in_, boost::asio::buffer(*lines),
                           [this, lines, is_here = is_here_](const boost::system::error_code& error, std::size_t) {
                             if (!*is_here) return;
                             is_writing_ = false;
                             if (!error) flush();  // Its end is told by the pidfd.
                           });
}

void SearchProgram::read() {
  out_.async_read_some(boost::asio::buffer(chunk_),
                       [this, is_here = is_here_](const boost::system::error_code& error, std::size_t size) {
                         if (!*is_here || error == boost::asio::error::operation_aborted) return;
                         if (error) return on_closed();
                         take(std::string_view(chunk_).substr(0, size));
                         if (*is_here && out_.is_open()) read();
                       });
}

/// It ends, most likely, and how is told then. One that goes on will never say a word.
void SearchProgram::on_closed() {
  if (has_ended_ || is_over_) return;
  limit_.after(kEndLimit, [this] {
    if (!has_ended_) fail("has closed its standard output, and goes on");
  });
}

void SearchProgram::take(std::string_view bytes) {
  const auto lines = lines_.take(bytes);
  if (!lines) {
    handlers_.on_failed(lines.error().message);
    is_over_ = true;
    boost::system::error_code ignored;
    out_.close(ignored);
    return;
  }
  for (const std::string& line : lines.value())
    if (!is_over_) handlers_.on_line(line);
}

void SearchProgram::wait_for_end() {
  pidfd_.async_wait(stream_descriptor::wait_read, [this, is_here = is_here_](const boost::system::error_code& error) {
    if (!error && *is_here) on_ended();
  });
}

/// What it has said before counts, and is in the pipe by now. Somebody whom it has left behind may go on writing.
void SearchProgram::on_ended() {
  has_ended_ = true;
  limit_.cancel();
  int left = 0;
  if (out_.is_open() && ::ioctl(out_.native_handle(), FIONREAD, &left) != 0) left = 0;
  while (left > 0 && out_.is_open() && !is_over_) {
    const std::size_t most = std::min(chunk_.size(), static_cast<std::size_t>(left));
    const ssize_t size = ::read(out_.native_handle(), chunk_.data(), most);
    if (size <= 0) break;
    left -= static_cast<int>(size);
    take(std::string_view(chunk_).substr(0, static_cast<std::size_t>(size)));
  }
  const auto status = process::wait_exit(pidfd_.native_handle());
  boost::system::error_code ignored;
  for (stream_descriptor* one : {&in_, &out_, &pidfd_}) one->close(ignored);
  if (done_) return std::exchange(done_, nullptr)();
  const bool is_known = status && status.value();
  const std::string how = is_known ? fmt::format("has ended with {}", process::describe(*status.value())) : "has ended";
  if (is_known && status.value()->signal == 0) return fail(how);
  if (!std::exchange(is_over_, true)) handlers_.on_killed("the search program " + how);
}

void SearchProgram::fail(const std::string& why) {
  if (std::exchange(is_over_, true)) return;
  handlers_.on_failed(fmt::format("the search program {}; its standard error is in {}", why, log_));
}

void SearchProgram::end(std::function<void()> done) {
  is_over_ = true;
  if (has_ended_) return done();
  done_ = std::move(done);
  // Ignoring: a program that does not read is ended by the closed pipe, or in a moment.
  const std::string bye = tune::bye_line();
  (void)!::write(in_.native_handle(), bye.data(), bye.size());
  boost::system::error_code ignored;
  in_.close(ignored);
  limit_.after(kEndLimit, [this] {
    if (has_ended_) return;
    (void)process::pidfd_send_signal(pidfd_.native_handle(), SIGKILL);  // Ignoring: it may have ended.
  });
}

}  // namespace sgd::cli
