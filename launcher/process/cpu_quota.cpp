#include "launcher/process/cpu_quota.hpp"

#include <algorithm>
#include <fstream>

#include "launcher/process/cpu_set.hpp"

namespace sgd::process {
namespace {

/// Version 2: "50000 100000" are microseconds of each period; "max" of the first: no quota.
std::optional<double> quota_in(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double quota = 0;
  double period = 0;
  if (file >> quota >> period && period > 0) return quota / period;
  return std::nullopt;
}

/// Version 1: the same in two files; -1: no quota.
std::optional<double> old_quota_in(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  double quota = 0;
  double period = 0;
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

/// In a container the path of /proc may be that of the host, and the folder itself is mounted.
std::optional<double> least_quota(const std::string& root, std::string path,
                                  std::optional<double> (*quota_of)(const std::string& folder)) {
  std::optional<double> least;
  for (;; path = path.substr(0, path.rfind('/'))) {
    if (path == "/") path.clear();
    if (const auto quota = quota_of(root + path)) least = std::min(*quota, least.value_or(*quota));
    if (path.find('/') == std::string::npos) return least;
  }
}

}  // namespace

/// Lines are "0::/path" for version 2 and "4:cpu,cpuacct:/path" for version 1.
std::optional<double> cpu_quota(const std::string& proc, const std::string& cgroup) {
  std::ifstream file(proc + "/self/cgroup");
  std::optional<double> found;
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers.find(",cpu,") != std::string::npos) found = least_quota(cgroup + "/cpu", path, old_quota_in);
    if (controllers == ",," && !found) found = least_quota(cgroup, path, quota_in);
  }
  return found;
}

int cpus_within(std::optional<double> quota, int cores) {
  if (!quota || *quota >= cores) return cores;
  return std::max(1, static_cast<int>(*quota));
}

int usable_cpus() {
  return cpus_within(cpu_quota(), static_cast<int>(allowed_cores().size()));
}

}  // namespace sgd::process
