#pragma once
// Where the cgroups of this process lie, for one controller.

#include <string>
#include <vector>

namespace sgd::process {

/// Folders from the process's own cgroup up to the one that is mounted. In a container the path of /proc may be that of
/// the host, and the mounted one itself is the process's: some need not be there. Empty: no such hierarchy.
struct OwnCgroups {
  std::vector<std::string> version_1;
  std::vector<std::string> version_2;
};

/// `proc` and `cgroup` are where those file systems are mounted; `controller` is "cpu", "memory", ...
[[nodiscard]] OwnCgroups own_cgroups(const std::string& proc, const std::string& cgroup, const std::string& controller);

}  // namespace sgd::process
