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

/// GPUs by the names that CUDA_VISIBLE_DEVICES takes: what `visible` (its value) names, up to the first word that names
/// none, as CUDA reads it; else all that NVML (`library`, opened when it is there) knows: their numbers, and where one
/// is divided (MIG) the UUIDs of its parts. One that cannot be had, or is divided into no parts, is left out; the
/// others have their UUIDs as names then.
[[nodiscard]] std::vector<std::string> gpus(const char* visible, const std::string& library = "libnvidia-ml.so.1");

/// Whether numbers among those names count along the bus, as NVML does, and CUDA must be told to (CUDA_DEVICE_ORDER):
/// by itself it begins with the fastest. `order`: that variable's value; whoever has set it knows what the numbers
/// mean.
[[nodiscard]] bool are_gpus_by_bus(const char* visible, const char* order);

}  // namespace sgd::process
