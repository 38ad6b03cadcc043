#pragma once
// What a node has for workers besides cores.

#include <cstdint>
#include <string>
#include <vector>

namespace sgd::process {

/// Of the machine, or of the memory cgroup that we are in, if that is less. 0: not known. `proc` and `cgroup` are where
/// those file systems are mounted.
[[nodiscard]] std::int64_t memory_bytes(const std::string& proc = "/proc",
                                        const std::string& cgroup = "/sys/fs/cgroup");

/// Numbers as CUDA_VISIBLE_DEVICES has them: what `visible` (its value) names, else every GPU that NVML (`library`,
/// opened when it is there) counts. Names that are no numbers ("GPU-8f...", "MIG-...") are not taken.
[[nodiscard]] std::vector<int> gpus(const char* visible, const std::string& library = "libnvidia-ml.so.1");

}  // namespace sgd::process
