#include "launcher/rendezvous/daemon_children.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "common/base/thread.hpp"
#include "common/exit_codes.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/spawn.hpp"

namespace sgd::rendezvous {
namespace {

constexpr Duration kLookMax = std::chrono::milliseconds(500);
constexpr std::streamoff kLastWordsBytes = 4096;
constexpr std::size_t kFirstWordsBytes = 4096;

/// Without the time in front of it.
std::string text_of(const std::string& line) {
  const std::size_t time = line.find("Z ");
  return !line.empty() && std::isdigit(static_cast<unsigned char>(line.front())) != 0 && time != std::string::npos
             ? line.substr(time + 2)
             : line;
}

std::string last_line(const std::string& path, const std::string& begin = {}) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  file.seekg(-std::min<std::streamoff>(file.tellg(), kLastWordsBytes), std::ios::end);
  std::string found;
  for (std::string line; std::getline(file, line);)
    if (!line.empty() && line.starts_with(begin)) found = line;
  return text_of(found);
}

/// What a daemon says as it ends stands before what its log has counted.
std::string reason_of_end(const std::string& path) {
  const std::string begin = "sgd-launch: ";
  const std::string said = last_line(path, begin);
  return said.empty() ? last_line(path) : said.substr(begin.size());
}

}  // namespace

DaemonChildren::~DaemonChildren() {
  end();
}

Status DaemonChildren::spawn(Child& child) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("cannot make a pipe");
  const process::UniqueFd theirs(ends[0]);
  process::UniqueFd ours(ends[1]);
  const process::UniqueFd log(
      ::open(child.daemon.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!log) return system_error("cannot write " + child.daemon.log);
  process::SpawnOptions options;
  options.argv = child.daemon.argv;
  options.input_fd = theirs.get();
  options.output_fd = log.get();
  options.dies_with_us = false;  // Its input says so, and it clears up what it runs.
  auto spawned = process::spawn(options);
  if (!spawned) return spawned.error();
  child.pid = spawned.value().pid;
  child.pidfd = std::move(spawned.value().pidfd);
  child.input = std::move(ours);
  return {};
}

Status DaemonChildren::start(Daemon daemon) {
  Child child;
  child.daemon = std::move(daemon);
  if (const Status spawned = spawn(child); !spawned) return spawned;
  const std::lock_guard lock(mutex_);
  children_.push_back(std::move(child));
  if (!wakeup_) wakeup_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!thread_.joinable()) {
    auto started = start_thread([this] { watch(); });
    if (!started)
      return Error{"cannot watch the daemons of this run: " + started.error().message, started.error().code};
    thread_ = std::move(started).value();
  }
  (void)::eventfd_write(wakeup_.get(), 1);
  return {};
}

std::optional<DaemonChildren::Refusal> DaemonChildren::refusal() {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

void DaemonChildren::settled() {
  const std::lock_guard lock(mutex_);
  is_settled_ = true;
}

const DaemonChildren::Child* DaemonChildren::find(const std::string& name) const {
  for (const Child& child : children_)
    if (child.daemon.name == name) return &child;
  return nullptr;
}

bool DaemonChildren::has_said(const std::string& name, const std::string& words) const {
  const std::lock_guard lock(mutex_);
  const Child* child = find(name);
  if (child == nullptr) return false;
  std::ifstream file(child->daemon.log, std::ios::binary);
  std::string text(kFirstWordsBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return text.find(words) != std::string::npos;
}

std::string DaemonChildren::last_words(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const Child* child = find(name);
  return child == nullptr ? "" : last_line(child->daemon.log);
}

pid_t DaemonChildren::pid(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const Child* child = find(name);
  return child == nullptr ? 0 : child->pid;
}

void DaemonChildren::terminate(const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (Child& child : children_) {
    if (child.daemon.name != name) continue;
    child.is_wanted = false;
    if (child.pid != 0) (void)process::pidfd_send_signal(child.pidfd.get(), SIGTERM);  // Ignoring: it may have ended.
  }
}

void DaemonChildren::watch() {
  std::unique_lock lock(mutex_);
  while (!is_ending_) {
    std::vector<pollfd> polled{{wakeup_.get(), POLLIN, 0}};
    for (const Child& child : children_)
      if (child.pid != 0) polled.push_back({child.pidfd.get(), POLLIN, 0});
    const TimePoint now = process::monotonic_now();
    Duration wait = kLookMax;
    for (const Child& child : children_)
      if (child.pid == 0 && child.is_wanted) wait = std::min(wait, std::max(child.start_at - now, Duration{0}));
    lock.unlock();
    (void)::poll(polled.data(), polled.size(),
                 static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count()));
    lock.lock();
    eventfd_t unused = 0;
    (void)::eventfd_read(wakeup_.get(), &unused);
    for (Child& child : children_) look_after(child, process::monotonic_now());
  }
}

/// One that ends by itself before it was of use would do so again: its options are wrong, or its port is taken. One
/// that is killed is not asked.
void DaemonChildren::look_after(Child& child, TimePoint now) {
  if (child.pid != 0) {
    const auto status = process::wait_exit(child.pidfd.get());
    if (status && !status.value()) return;
    child.pid = 0;
    child.pidfd.reset();
    child.input.reset();
    child.start_at = now + child.delay;
    child.delay = std::min(2 * child.delay, kRestartMax);
    const bool was_killed = status && status.value()->signal != 0;
    const int code = status ? status.value()->exit_code : -1;
    if ((!is_settled_ || code == exit_code::kUnreachable) && !was_killed && child.is_wanted) {
      child.is_wanted = false;
      refusal_ = Refusal{reason_of_end(child.daemon.log), code};
    }
  }
  if (is_ending_ || !child.is_wanted || child.pid != 0 || now < child.start_at) return;
  if (const Status spawned = spawn(child); !spawned) child.start_at = now + child.delay;
}

void DaemonChildren::end() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    if (wakeup_) (void)::eventfd_write(wakeup_.get(), 1);
  }
  if (thread_.joinable()) thread_.join();
  // The newest first: an agent says good-bye to a coordinator that is still there.
  const TimePoint deadline = process::monotonic_now() + kEndLimit;
  for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
    child->input.reset();
    if (child->pid == 0) continue;
    pollfd ended{child->pidfd.get(), POLLIN, 0};
    const Duration left = std::max(deadline - process::monotonic_now(), Duration{0});
    if (::poll(&ended, 1, static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count())) != 1)
      (void)process::pidfd_send_signal(child->pidfd.get(), SIGKILL);  // Ignoring: it may have ended.
    (void)::poll(&ended, 1, -1);
    (void)process::wait_exit(child->pidfd.get());
    child->pid = 0;
  }
  children_.clear();
}

}  // namespace sgd::rendezvous
