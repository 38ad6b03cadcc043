// The killing half of process_tree.hpp.
//
// A process with SIGKILL pending cannot fork any more. Groups are killed first, because the
// kernel signals a whole group in one step that no fork can slip through; then every process
// by itself, for those that left their group.

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>

#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/process_tree.hpp"

namespace sgd::process {
namespace {

constexpr std::size_t kPolledMax = 64;
constexpr Duration kPassInterval = std::chrono::milliseconds(10);

void reap_all() {
  while (const pid_t pid = peek_ended_child()) reap_child(pid);
}

/// Waits until one of `entries` has ended, or a pass is due anyway.
void wait_for_an_end(const std::vector<ProcessEntry>& entries, TimePoint deadline) {
  std::vector<UniqueFd> watched;
  std::vector<pollfd> polled;
  for (const ProcessEntry& entry : entries) {
    if (watched.size() == kPolledMax) break;
    auto fd = pidfd_open(entry.pid);
    if (!fd) continue;
    polled.push_back({fd.value().get(), POLLIN, 0});
    watched.push_back(std::move(fd).value());
  }
  const TimePoint now = monotonic_now();
  (void)::poll(polled.data(), polled.size(),  // Ignoring: whoever ended, the next pass looks at all.
               poll_timeout_ms(now, std::min(deadline, now + kPassInterval)));
}

}  // namespace

/// Of those that the last look found: parents come before children.
std::set<pid_t> TreeKiller::spared_now() const {
  std::set<pid_t> spared = spared_;
  if (spares_ == Spares::kTrees)
    for (const ProcessEntry& entry : left_)
      if (spared.contains(entry.parent)) spared.insert(entry.pid);
  return spared;
}

void TreeKiller::kill_groups(const std::set<pid_t>& spared) {
  const pid_t self = ::getpid();
  const pid_t own_group = ::getpgrp();
  std::set<pid_t> shielded{own_group};
  for (const ProcessEntry& entry : left_) {
    if (spared.contains(entry.pid)) shielded.insert(entry.group);
  }
  for (const ProcessEntry& entry : left_) {
    // Only our own children pin their group's number: nobody but us can reap them.
    if (entry.parent != self || spared.contains(entry.pid)) continue;
    if (shielded.insert(entry.group).second) (void)::kill(-entry.group, SIGKILL);  // Ignoring: all may have ended.
  }
}

void TreeKiller::kill_one(const ProcessEntry& entry) {
  auto fd = pidfd_open(entry.pid);
  if (!fd) return;
  const auto now = read_process(entry.pid);
  if (!now || now->start_ticks != entry.start_ticks) return;
  (void)pidfd_send_signal(fd.value().get(), SIGKILL);  // Ignoring: it may have ended since.
  seen_.emplace(entry.pid, entry.start_ticks);
}

void TreeKiller::kill(pid_t pid) {
  if (const auto entry = read_process(pid)) kill_one(*entry);
}

int TreeKiller::pass() {
  left_ = descendants(::getpid());
  const std::set<pid_t> spared = spared_now();
  kill_groups(spared);
  std::erase_if(left_, [&](const ProcessEntry& entry) { return spared.contains(entry.pid); });
  for (const ProcessEntry& entry : left_) kill_one(entry);
  return static_cast<int>(left_.size());
}

Result<int> kill_descendants(const std::set<pid_t>& spared, Duration limit, TreeKiller::Spares spares) {
  const TimePoint deadline = monotonic_now() + limit;
  TreeKiller killer(spared, spares);
  for (;;) {
    reap_all();
    const int found = killer.pass();
    if (found == 0 && peek_ended_child() == 0) return killer.killed();
    if (monotonic_now() >= deadline && !killer.left().empty()) {
      return Error{"process " + std::to_string(killer.left().front().pid) + " does not die of SIGKILL", ETIMEDOUT};
    }
    if (found > 0) wait_for_an_end(killer.left(), deadline);
  }
}

}  // namespace sgd::process
