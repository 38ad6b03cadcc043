// The way of checkpoints from the nodes that have saved them to the coordinator's disk.

#include "test/sim/cluster.hpp"

namespace sgd::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

void Cluster::send_checkpoint(RunState& run, const std::string& path, Node& node) {
  run.disk.keep_at(path, node.id(), world_.chance.with(0.5));
  const Duration time = world_.chance.spread_between(world_.plan.travel / 10, world_.plan.travel * 2);
  world_.queue.after(time, [this, &run, path, &node] { bring_checkpoint(run, path, node); });
}

/// As soon as both are there. One that is damaged is not taken, and one that was superseded is not sent.
void Cluster::bring_checkpoint(RunState& run, const std::string& path, Node& node) {
  const Saved* saved = run.disk.find(path);
  if (saved == nullptr || saved->is_stored || saved->is_damaged || node.is_gone()) return;
  if (!node.is_up() || !coordinator_alive() || coordinator_.paused()) {
    world_.queue.after(milliseconds(500), [this, &run, path, &node] { bring_checkpoint(run, path, node); });
    return;
  }
  run.disk.store(path);
  world_.say("{}: {} is stored", run.plan.definition.id, path);
  tell(core::coordinator_event::CheckpointStored{run.plan.definition.id, path});
}

/// What has come and was not noted: a coordinator looks into the folders of its runs when it starts.
void Cluster::tell_stored_again() {
  if (!world_.plan.settings.files_travel) return;
  for (auto& [id, run] : runs_)
    for (const std::string& path : run.disk.stored()) tell(core::coordinator_event::CheckpointStored{id, path});
}

bool Cluster::is_within_reach(const Saved& saved) {
  return saved.is_stored || node(saved.home).is_up();
}

}  // namespace sgd::sim
