#pragma once
// A control group of version 2 below our own, for one tree of processes: the kernel then knows all that belong to it,
// whatever they have done to their session, their parents and their environment, and kills them at once (cgroup.kill,
// Linux 5.14). It needs the right to make groups there: as root, or where systemd delegates (Delegate=).

#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"

namespace sgd::process {

class CgroupLeaf {
 public:
  /// Named `name` ([A-Za-z0-9._-]), new or found. Nothing: none can be made here.
  [[nodiscard]] static std::optional<CgroupLeaf> make(const std::string& name);
  /// Nothing: there is none of this name.
  [[nodiscard]] static std::optional<CgroupLeaf> find(const std::string& name);

  /// All whose names begin so.
  [[nodiscard]] static std::vector<CgroupLeaf> all(const std::string& prefix);

  [[nodiscard]] const std::string& path() const { return path_; }
  /// SIGKILL to all in it until none is left; one that is gone has nobody. Error: some do not die within `limit`.
  [[nodiscard]] Status kill(Duration limit) const;
  /// SIGKILL to all in it, once.
  [[nodiscard]] Status order_kill() const;
  [[nodiscard]] bool is_populated() const;
  /// It goes if nobody is in it.
  void remove() const;

 private:
  explicit CgroupLeaf(std::string path) : path_(std::move(path)) {}

  std::string path_;
};

}  // namespace sgd::process
