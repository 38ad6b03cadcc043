#include "launcher/core/gpu_faults.hpp"

#include <fmt/format.h>

namespace sgd::core {
namespace {

/// GPUs named in one reason; the others are counted.
constexpr std::size_t kNamed = 4;

}  // namespace

int note_fault(GpuFaults& faults, const NodeId& node, const std::string& gpu) {
  std::size_t known = 0;
  for (const auto& [name, gpus] : faults) known += gpus.size();
  const auto its = faults.find(node);
  const bool is_known = its != faults.end() && its->second.contains(gpu);
  if (!is_known && known >= kFaultyGpusMax) return 0;
  return ++faults[node][gpu];
}

std::vector<LeftOutGpu> left_out(const GpuFaults& faults, int after) {
  std::vector<LeftOutGpu> found;
  if (after == 0) return found;
  for (const auto& [node, gpus] : faults)
    for (const auto& [gpu, restarts] : gpus)
      if (restarts >= after) found.push_back({node, gpu, restarts});
  return found;
}

std::vector<std::string> left_out_of(const GpuFaults& faults, const NodeId& node, int after) {
  std::vector<std::string> found;
  const auto its = faults.find(node);
  if (its == faults.end() || after == 0) return found;
  for (const auto& [gpu, restarts] : its->second)
    if (restarts >= after) found.push_back(gpu);
  return found;
}

std::string words_of_left_out(const GpuFaults& faults, int after) {
  const std::vector<LeftOutGpu> found = left_out(faults, after);
  std::string text;
  for (std::size_t index = 0; index < found.size() && index < kNamed; ++index) {
    const LeftOutGpu& one = found[index];
    text += fmt::format("{}GPU {} of {} is left out after {} restart{}", text.empty() ? "" : ", ", one.gpu, one.node,
                        one.restarts, one.restarts == 1 ? "" : "s");
  }
  if (found.size() > kNamed) text += fmt::format(", and {} more", found.size() - kNamed);
  return text;
}

}  // namespace sgd::core
