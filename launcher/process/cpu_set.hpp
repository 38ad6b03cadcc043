#pragma once
// The cores that this process may use, and masks of cores for children. How cores are
// divided among ranks is decided in launcher/core/cpu_share.hpp.

#include <sched.h>

#include <cstddef>
#include <string>
#include <vector>

namespace sgd::process {

/// A core mask of any size (glibc's fixed one ends at 1024), usable between fork and exec.
class CpuMask {
 public:
  CpuMask() = default;
  explicit CpuMask(const std::vector<int>& cores);

  [[nodiscard]] bool empty() const { return words_.empty(); }
  [[nodiscard]] std::size_t bytes() const { return words_.size() * sizeof(unsigned long); }
  [[nodiscard]] const cpu_set_t* data() const { return reinterpret_cast<const cpu_set_t*>(words_.data()); }

 private:
  std::vector<unsigned long> words_;
};

/// In ascending order; never empty.
[[nodiscard]] std::vector<int> allowed_cores();

/// Those of `cores` by NUMA node, nodes without one left out; empty where the kernel tells of none. `nodes` is where it
/// does.
[[nodiscard]] std::vector<std::vector<int>> by_numa_node(const std::vector<int>& cores,
                                                         const std::string& nodes = "/sys/devices/system/node");

}  // namespace sgd::process
