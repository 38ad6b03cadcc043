#include "launcher/process/strays.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/process_tree.hpp"

namespace sgd::process {
namespace {

constexpr Duration kStrayInterval = std::chrono::milliseconds(5);
constexpr std::size_t kEnvironmentBytesMax = 4 << 20;
bool bears(pid_t pid, const StrayMark& mark) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/environ", pid);
  const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  std::string text(1, '\0');  // So that each entry stands behind a zero.
  char piece[16 << 10];
  for (ssize_t count = 0; text.size() < kEnvironmentBytesMax && (count = ::read(file.get(), piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<std::size_t>(count));
  const std::string wanted = std::string(1, '\0') + mark.entry + (mark.is_prefix ? "" : std::string(1, '\0'));
  return text.find(wanted) != std::string::npos;
}

}  // namespace

StrayKiller::StrayKiller(StrayMark mark) : mark_(std::move(mark)) {
  if (mark_.session > 0) sessions_.insert(mark_.session);
}

std::vector<ProcessEntry> StrayKiller::pass() {
  const pid_t self = ::getpid();
  std::vector<ProcessEntry> found;
  bool has_grown = true;
  const std::vector<ProcessEntry> all = all_processes();
  std::set<pid_t> known;
  for (const ProcessEntry& entry : all)
    if (entry.pid != self && !entry.zombie && bears(entry.pid, mark_)) {
      known.insert(entry.pid);
      sessions_.insert(entry.session);
    }
  sessions_.erase(::getsid(0));
  while (std::exchange(has_grown, false))
    for (const ProcessEntry& entry : all) {
      if (entry.pid == self || known.contains(entry.pid)) continue;
      const bool is_ours = sessions_.contains(entry.session) || known.contains(entry.parent);
      if (is_ours) has_grown |= known.insert(entry.pid).second;
    }
  for (const ProcessEntry& entry : all) {
    if (!known.contains(entry.pid)) continue;
    if (entry.zombie && entry.parent == self) reap_child(entry.pid);
    if (entry.zombie) continue;
    kill(entry);
    found.push_back(entry);
  }
  for (const auto& one : killed_)  // Of other sessions, and ours to reap.
    if (const auto entry = read_process(one.first);
        entry && entry->zombie && entry->parent == self && entry->start_ticks == one.second)
      reap_child(one.first);
  return found;
}

void StrayKiller::kill(const ProcessEntry& entry) {
  auto fd = pidfd_open(entry.pid);
  const auto now = read_process(entry.pid);
  if (!fd || !now || now->start_ticks != entry.start_ticks) return;
  (void)pidfd_send_signal(fd.value().get(), SIGKILL);  // Ignoring: it may have ended since, or be another user's.
  killed_.emplace(entry.pid, entry.start_ticks);
}

Result<int> kill_strays(const StrayMark& mark, Duration limit) {
  const TimePoint deadline = monotonic_now() + limit;
  StrayKiller killer(mark);
  for (int empty = 0;;) {
    const std::vector<ProcessEntry> left = killer.pass();
    empty = left.empty() ? empty + 1 : 0;
    if (empty == StrayKiller::kPassesToBeSure) return killer.killed();
    const TimePoint now = monotonic_now();
    if (now >= deadline && !left.empty())
      return Error{"process " + std::to_string(left.front().pid) + " does not die of SIGKILL", ETIMEDOUT};
    if (!left.empty()) (void)::poll(nullptr, 0, poll_timeout_ms(now, now + kStrayInterval));
  }
}

}  // namespace sgd::process
