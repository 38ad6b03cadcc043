#include "launcher/process/memory_cgroup.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "launcher/process/own_cgroups.hpp"

namespace sgd::process {
namespace {

constexpr std::int64_t kUnlimitedFrom = std::int64_t{1} << 60;  // Version 1 says 2^63 less a page for no limit.

/// Of the nearest that counts memory and can be read by us.
std::optional<MemoryCgroup> files_of(const std::vector<std::string>& folders, const char* counter, const char* limit) {
  for (const std::string& folder : folders)
    if (::faccessat(AT_FDCWD, (folder + "/" + counter).c_str(), R_OK, AT_EACCESS) == 0)
      return MemoryCgroup{folder + "/" + counter, folder + "/" + limit};
  return std::nullopt;
}

}  // namespace

std::optional<std::int64_t> MemoryCgroup::limit_bytes() const {
  std::ifstream file(limit);
  std::int64_t bytes = 0;
  if (!(file >> bytes) || bytes >= kUnlimitedFrom) return std::nullopt;
  return bytes;
}

std::optional<MemoryCgroup> find_memory_cgroup(const std::string& proc, const std::string& cgroup) {
  const OwnCgroups own = own_cgroups(proc, cgroup, "memory");
  auto old = files_of(own.version_1, "memory.oom_control", "memory.limit_in_bytes");
  return old ? old : files_of(own.version_2, "memory.events", "memory.max");
}

}  // namespace sgd::process
