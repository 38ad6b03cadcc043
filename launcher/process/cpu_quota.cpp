#include "launcher/process/cpu_quota.hpp"

#include <algorithm>
#include <fstream>
#include <vector>

#include "launcher/process/cpu_set.hpp"
#include "launcher/process/own_cgroups.hpp"

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

std::optional<double> least_of(const std::vector<std::string>& folders,
                               std::optional<double> (*quota_of)(const std::string& folder)) {
  std::optional<double> least;
  for (const std::string& folder : folders)
    if (const auto quota = quota_of(folder)) least = std::min(*quota, least.value_or(*quota));
  return least;
}

}  // namespace

std::optional<double> cpu_quota(const std::string& proc, const std::string& cgroup) {
  const OwnCgroups own = own_cgroups(proc, cgroup, "cpu");
  const auto old = least_of(own.version_1, old_quota_in);
  return old ? old : least_of(own.version_2, quota_in);
}

int cpus_within(std::optional<double> quota, int cores) {
  if (!quota || *quota >= cores) return cores;
  return std::max(1, static_cast<int>(*quota));
}

int usable_cpus() {
  return cpus_within(cpu_quota(), static_cast<int>(allowed_cores().size()));
}

}  // namespace sgd::process
