#include "launcher/process/out_of_memory.hpp"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/format.h>

namespace sgd::process {
namespace {

constexpr std::int64_t kMiB = 1024 * 1024;
constexpr std::int64_t kUnlimitedFrom = std::int64_t{1} << 60;  // Version 1 says 2^63 less a page for no limit.

struct Files {
  std::string counter;
  std::string limit;
};

/// In a container the path of /proc may be that of the host, and the folder itself is mounted.
std::optional<Files> files_of(const std::string& root, const std::string& path, const char* counter, const char* limit) {
  for (const std::string& folder : {root + path, root})
    if (std::filesystem::exists(folder + "/" + counter)) return Files{folder + "/" + counter, folder + "/" + limit};
  return std::nullopt;
}

/// Lines are "0::/path" for version 2 and "4:memory:/path" for version 1.
std::optional<Files> find(const std::string& proc, const std::string& cgroup) {
  std::ifstream file(proc + "/self/cgroup");
  std::optional<Files> found;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers.find(",memory,") != std::string::npos)
      found = files_of(cgroup + "/memory", path, "memory.oom_control", "memory.limit_in_bytes");
    if (controllers == ",," && !found) found = files_of(cgroup, path, "memory.events", "memory.max");
  }
  return found;
}

}  // namespace

void be_killed_first(int pid) {
  constexpr int kScore = 500;  // Of 1,000: as if it held half of the memory more than it does.
  std::ofstream(fmt::format("/proc/{}/oom_score_adj", pid)) << kScore;
}

OutOfMemoryKills::OutOfMemoryKills(const std::string& proc, const std::string& cgroup) {
  const std::optional<Files> files = find(proc, cgroup);
  counter_ = files ? files->counter : proc + "/vmstat";
  limit_ = files ? files->limit : "";
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
  std::ifstream file(limit_);
  std::int64_t bytes = 0;
  if (limit_.empty() || !(file >> bytes) || bytes >= kUnlimitedFrom)
    return "out of memory: the kernel killed it, since the machine had none left";
  return fmt::format("out of memory: the kernel killed it at the limit of {} MiB ({})", bytes / kMiB, limit_);
}

}  // namespace sgd::process
