#include "launcher/process/own_children.hpp"

#include <unistd.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "launcher/process/process_tree.hpp"

namespace sgd::process {
namespace {

/// A number may be another process's by now: the time of its start tells.
struct OwnChildren {
  std::mutex mutex;  ///< Some programs start theirs in two threads.
  std::map<pid_t, std::uint64_t> start_ticks;
  std::size_t looked_after = 0;  ///< So many were left when those that are gone were last forgotten.
};

constexpr std::size_t kForgetFrom = 64;

OwnChildren& started_here() {
  static OwnChildren children;
  return children;
}

void forget_ended(OwnChildren& children) {
  std::erase_if(children.start_ticks, [self = ::getpid()](const auto& child) {
    const auto entry = read_process(child.first);
    return !entry || entry->start_ticks != child.second || entry->parent != self;
  });
  children.looked_after = children.start_ticks.size();
}

}  // namespace

void note_own_child(pid_t pid) {
  const auto entry = read_process(pid);
  if (!entry) return;
  OwnChildren& children = started_here();
  const std::lock_guard lock(children.mutex);
  children.start_ticks[pid] = entry->start_ticks;
  if (children.start_ticks.size() >= 2 * children.looked_after + kForgetFrom) forget_ended(children);
}

std::set<pid_t> own_children() {
  OwnChildren& children = started_here();
  const std::lock_guard lock(children.mutex);
  forget_ended(children);
  std::set<pid_t> pids;
  for (const auto& child : children.start_ticks) pids.insert(child.first);
  return pids;
}

}  // namespace sgd::process
