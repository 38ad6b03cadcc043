// GPUs that a run does without: which one is to blame for a restart, and what the run says of it.

#include <algorithm>

#include "launcher/core/run_machine.hpp"

namespace sgd::core {

/// The ranks start again after `cause`. Other GPUs are another matter: what the same rank does next does not show that
/// its program is at fault.
void RunMachine::note_gpu_fault(const Failure& cause, CoordinatorCommands& out) {
  const int after = definition_.job.recovery.exclude_after;
  if (cause.gpu.empty() || after == 0) return;
  const int restarts = note_fault(gpu_faults_, cause.node, cause.gpu);
  if (restarts != after) return;  // Not yet; or an agent of another version deals it out all the same.
  budget_.on_other_gpu();
  record({{"event", "gpu_excluded"},
          {"generation", generation_},
          {"node", cause.node},
          {"device", cause.gpu},
          {"count", restarts}},
         out);
}

std::vector<LeftOutGpu> RunMachine::gpus_left_out() const {
  return left_out(gpu_faults_, definition_.job.recovery.exclude_after);
}

bool RunMachine::does_without(const NodeId& node, const std::string& gpu) const {
  const auto its = gpu_faults_.find(node);
  if (its == gpu_faults_.end() || definition_.job.recovery.exclude_after == 0) return false;
  const auto restarts = its->second.find(gpu);
  return restarts != its->second.end() && restarts->second >= definition_.job.recovery.exclude_after;
}

bool RunMachine::holds_gpu(const NodeId& node, const std::string& gpu) const {
  const auto place = nodes_.find(node);
  if (place == nodes_.end() || slots_of(place->second) == 0) return false;
  return std::any_of(place->second.ranks.begin(), place->second.ranks.end(), [&](Rank rank) {
    const std::vector<std::string>& gpus = ranks_.at(rank).gpus;
    return std::find(gpus.begin(), gpus.end(), gpu) != gpus.end();
  });
}

/// Behind the reason why it has no place.
std::string RunMachine::without_gpus() const {
  const std::string words = words_of_left_out(gpu_faults_, definition_.job.recovery.exclude_after);
  return words.empty() ? "" : "; " + words;
}

}  // namespace sgd::core
