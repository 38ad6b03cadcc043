#pragma once
// How many workers of a run fit on a node, counted by the job's rules and by nothing of the core: the queue is judged
// by it.

#include <algorithm>
#include <string>

#include "common/base/ids.hpp"
#include "common/job/spec.hpp"

namespace sgd::sim {

/// What a node has, and what is taken of it.
struct Ground {
  NodeId node;
  std::string zone;  ///< Its label.
  int slots = 0;
  int cpus = 0;
  bool counts_cpus = false;
  bool is_open = false;  ///< New ranks may come.
  int gpus = 0;
  int gpus_left_out = 0;  ///< That this run does without, and nobody else has.
  int slots_taken = 0;
  int cpus_taken = 0;
  int gpus_taken = 0;

  void take(int workers, const job::PerWorker& each) {
    slots_taken += workers;
    cpus_taken += workers * each.cpus;
    gpus_taken += workers * each.gpus;
  }
};

/// Workers of `job` that may be on this node besides `own` of it: now, or were nothing of it taken.
[[nodiscard]] inline int room_on(const Ground& ground, const job::JobSpec& job, int own, bool when_idle) {
  const job::PlacementRules& rules = job.placement;
  if (!ground.is_open) return 0;
  for (const NodeId& excluded : rules.exclude)
    if (excluded == ground.node) return 0;
  const auto zone = rules.labels.find("zone");
  if (zone != rules.labels.end() && zone->second != ground.zone) return 0;
  int most = ground.slots - (when_idle ? 0 : ground.slots_taken);
  if (ground.counts_cpus && job.per_worker.cpus > 0)
    most = std::min(most, (ground.cpus - (when_idle ? 0 : ground.cpus_taken)) / job.per_worker.cpus);
  if (job.per_worker.gpus > 0)
    most = std::min(most,
                    (ground.gpus - ground.gpus_left_out - (when_idle ? 0 : ground.gpus_taken)) / job.per_worker.gpus);
  if (rules.max_per_node > 0) most = std::min(most, rules.max_per_node - own);
  return std::max(most, 0);
}

}  // namespace sgd::sim
