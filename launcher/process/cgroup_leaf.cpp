#include "launcher/process/cgroup_leaf.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "launcher/process/clock.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::process {
namespace {

constexpr Duration kLookInterval = std::chrono::milliseconds(2);
constexpr mode_t kMode = 0755;  ///< Whatever our umask: other accounts' keepers read their limits in there.

bool is_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

/// Our own group's folder; empty where version 2 is not mounted or does not show it.
std::string own_group() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("0::")) continue;
    std::string path = line.substr(3);
    if (path == "/") path.clear();
    for (const char* root : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"})
      if (is_file(root + path + "/cgroup.controllers")) return root + path;
  }
  return {};
}

}  // namespace

std::optional<CgroupLeaf> CgroupLeaf::make(const std::string& name) {
  const std::string group = own_group();
  if (group.empty()) return std::nullopt;
  const std::string path = group + "/" + name;
  if (::mkdir(path.c_str(), kMode) != 0 && errno != EEXIST) return std::nullopt;
  (void)::chmod(path.c_str(), kMode);  // Ignoring: who cannot change it may use it as it is.
  if (::access((path + "/cgroup.kill").c_str(), W_OK) == 0 && ::access((path + "/cgroup.procs").c_str(), W_OK) == 0)
    return CgroupLeaf(path);
  (void)::rmdir(path.c_str());  // Ignoring: it is of no use, and empty.
  return std::nullopt;
}

std::optional<CgroupLeaf> CgroupLeaf::find(const std::string& name) {
  const std::string path = own_group() + "/" + name;
  if (!is_file(path + "/cgroup.kill")) return std::nullopt;
  return CgroupLeaf(path);
}

std::vector<CgroupLeaf> CgroupLeaf::all(const std::string& prefix) {
  std::vector<CgroupLeaf> found;
  const std::string group = own_group();
  std::error_code error;
  if (group.empty()) return found;
  for (std::filesystem::directory_iterator at(group, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(prefix) && is_file(at->path().string() + "/cgroup.kill"))
      found.push_back(CgroupLeaf(at->path().string()));
  }
  return found;
}

bool CgroupLeaf::is_populated() const {
  std::ifstream file(path_ + "/cgroup.events");
  std::string key;
  for (int value = 0; file >> key >> value;)
    if (key == "populated") return value != 0;
  return false;
}

Status CgroupLeaf::order_kill() const {
  const UniqueFd order(::open((path_ + "/cgroup.kill").c_str(), O_WRONLY | O_CLOEXEC));
  if (!order && errno == ENOENT) return {};
  if (!order || ::write(order.get(), "1", 1) != 1) return system_error("cannot kill what is in " + path_);
  return {};
}

Status CgroupLeaf::kill(Duration limit) const {
  const TimePoint deadline = monotonic_now() + limit;
  if (Status ordered = order_kill(); !ordered) return ordered;
  while (is_populated()) {
    const TimePoint now = monotonic_now();
    if (now >= deadline) return Error{"what is in " + path_ + " does not die of SIGKILL", ETIMEDOUT};
    (void)::poll(nullptr, 0, poll_timeout_ms(now, now + kLookInterval));
  }
  return {};
}

void CgroupLeaf::remove() const {
  (void)::rmdir(path_.c_str());  // Ignoring: it may be gone.
}

}  // namespace sgd::process
