#include "launcher/process/out_of_memory.hpp"

#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace sgd::process {
namespace {

constexpr std::int64_t kMiB = 1024 * 1024;

}  // namespace

void be_killed_first(int pid) {
  constexpr int kScore = 500;  // Of 1,000: as if it held half of the memory more than it does.
  std::ofstream(fmt::format("/proc/{}/oom_score_adj", pid)) << kScore;
}

OutOfMemoryKills::OutOfMemoryKills(const std::string& proc, const std::string& cgroup) {
  group_ = find_memory_cgroup(proc, cgroup);
  counter_ = group_ ? group_->counter : proc + "/vmstat";
  taken_ = count();
}

bool OutOfMemoryKills::take_one() {
  if (count() <= taken_) return false;
  ++taken_;
  return true;
}

std::int64_t OutOfMemoryKills::count() const {
  std::ifstream file(counter_);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t value = 0;
    if (words >> key >> value && key == "oom_kill") return value;
  }
  return 0;
}

std::string OutOfMemoryKills::words() const {
  if (!group_)
    return fmt::format("probably out of memory: the kernel has killed a process of this machine for want of it ({})",
                       counter_);
  const auto limit = group_->limit_bytes();
  if (!limit) return fmt::format("out of memory: the kernel killed it ({})", counter_);
  return fmt::format("out of memory: the kernel killed it at the limit of {} MiB ({})", *limit / kMiB, group_->limit);
}

}  // namespace sgd::process
