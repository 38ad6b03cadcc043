#pragma once
// The memory cgroup that this process and its children are in, version 2 or 1.

#include <cstdint>
#include <optional>
#include <string>

namespace sgd::process {

struct MemoryCgroup {
  std::string counter;  ///< A file with a line "oom_kill N".
  std::string limit;    ///< A file with a number of bytes, or "max".

  /// Nothing without a limit.
  [[nodiscard]] std::optional<std::int64_t> limit_bytes() const;
};

/// `proc` and `cgroup` are where those file systems are mounted. Nothing where there is no such cgroup.
[[nodiscard]] std::optional<MemoryCgroup> find_memory_cgroup(const std::string& proc, const std::string& cgroup);

}  // namespace sgd::process
