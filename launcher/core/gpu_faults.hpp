#pragma once
// Which GPUs a run does without: those that were the named cause of as many of its restarts as its job allows
// (recovery.exclude_after). Counted by the run; other runs keep using them, and another life of the run knows nothing
// of it.

#include <map>
#include <string>
#include <vector>

#include "common/base/ids.hpp"

namespace sgd::core {

/// Restarts by node and GPU.
using GpuFaults = std::map<NodeId, std::map<std::string, int>>;

/// GPUs of one run that are counted.
inline constexpr std::size_t kFaultyGpusMax = 1024;
/// That a snapshot names.
inline constexpr std::size_t kShownGpusMax = 100;

struct LeftOutGpu {
  NodeId node;
  std::string gpu;
  int restarts = 0;
};

/// Of how many restarts it is the cause by now; 0: it is not counted, since too many others are.
int note_fault(GpuFaults& faults, const NodeId& node, const std::string& gpu);
/// By node and GPU. `after` 0: none.
[[nodiscard]] std::vector<LeftOutGpu> left_out(const GpuFaults& faults, int after);
/// Of one node, by name.
[[nodiscard]] std::vector<std::string> left_out_of(const GpuFaults& faults, const NodeId& node, int after);
/// "GPU 1 of a is left out after 2 restarts"; of several the first ones, and how many more; empty: none is left out.
[[nodiscard]] std::string words_of_left_out(const GpuFaults& faults, int after);

}  // namespace sgd::core
