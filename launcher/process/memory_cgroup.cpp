#include "launcher/process/memory_cgroup.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>

namespace sgd::process {
namespace {

constexpr std::int64_t kUnlimitedFrom = std::int64_t{1} << 60;  // Version 1 says 2^63 less a page for no limit.

/// Of the nearest group that counts memory and can be read by us. In a container the path of /proc may be that of the
/// host, and the folder itself is mounted.
std::optional<MemoryCgroup> files_of(const std::string& root, std::string path, const char* counter,
                                     const char* limit) {
  for (;; path = path.substr(0, path.rfind('/'))) {
    if (path == "/") path.clear();
    if (const std::string folder = root + path;
        ::faccessat(AT_FDCWD, (folder + "/" + counter).c_str(), R_OK, AT_EACCESS) == 0)
      return MemoryCgroup{folder + "/" + counter, folder + "/" + limit};
    if (path.find('/') == std::string::npos) return std::nullopt;
  }
}

}  // namespace

std::optional<std::int64_t> MemoryCgroup::limit_bytes() const {
  std::ifstream file(limit);
  std::int64_t bytes = 0;
  if (!(file >> bytes) || bytes >= kUnlimitedFrom) return std::nullopt;
  return bytes;
}

/// Lines are "0::/path" for version 2 and "4:memory:/path" for version 1.
std::optional<MemoryCgroup> find_memory_cgroup(const std::string& proc, const std::string& cgroup) {
  std::ifstream file(proc + "/self/cgroup");
  std::optional<MemoryCgroup> found;
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

}  // namespace sgd::process
