#pragma once
// Tells the kernel's kills for want of memory from other SIGKILLs: by the counter of the memory cgroup that this
// process and its children are in (version 2 or 1), or that of the whole machine where there is none. The machine's
// counts processes of everybody: what it says of one of them is only likely, and is said so.

#include <cstdint>
#include <optional>
#include <string>

#include "launcher/process/memory_cgroup.hpp"

namespace sgd::process {

/// A rank goes before those that could tell of it and restart it.
void be_killed_first(int pid);

class OutOfMemoryKills {
 public:
  /// Counts from here on. `proc` and `cgroup` are where those file systems are mounted.
  explicit OutOfMemoryKills(const std::string& proc = "/proc", const std::string& cgroup = "/sys/fs/cgroup");

  /// True once for each kill since the last call that was told of it: ask when a process was ended by SIGKILL.
  [[nodiscard]] bool take_one();
  /// No process is there that earlier kills could have been of.
  void forget() { taken_ = count(); }
  /// "out of memory: the kernel killed it at the limit of 512 MiB (/sys/fs/cgroup/...)", "probably out of memory: ...".
  [[nodiscard]] std::string words() const;

 private:
  [[nodiscard]] std::int64_t count() const;

  std::string counter_;                ///< A file with a line "oom_kill N".
  std::optional<MemoryCgroup> group_;  ///< Absent: the machine's memory is the limit.
  std::int64_t taken_ = 0;
};

}  // namespace sgd::process
