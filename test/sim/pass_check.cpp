#include "test/sim/pass_check.hpp"

#include <tuple>

namespace sgd::sim {

using Capacities = std::map<NodeId, core::NodeCapacity>;

namespace {

int all_rooms(const Capacities& nodes, const core::Demand& demand, bool when_idle) {
  int all = 0;
  for (const auto& [id, node] : nodes)
    all += when_idle ? core::room_when_idle(id, node, demand) : core::room(id, node, demand);
  return all;
}

}  // namespace

core::Demand PassCheck::demand_of(const RunId& run) const {
  const job::JobSpec& job = runs_.at(run).plan.definition.job;
  const bool is_strict = runs_.at(run).check.generation() == 0 && !job.elastic_start;
  return {job.num_workers, is_strict ? job.num_workers : job.min_workers, job.per_worker, job.placement};
}

/// For its first start.
bool PassCheck::waits(const core::Coordinator& coordinator, const RunId& run) const {
  const auto shot = coordinator.snapshot(world_.queue.now(), run);
  return shot && shot->phase == core::RunPhase::kPlacing;
}

bool PassCheck::is_before(const RunId& a, const RunId& b) const {
  const auto rank = [this](const RunId& run) {
    return std::tuple(-runs_.at(run).plan.definition.priority, submitted_.contains(run) ? submitted_.at(run) : 0);
  };
  return rank(a) < rank(b);
}

bool PassCheck::is_first(const core::Coordinator& coordinator, const RunId& run) const {
  for (const auto& [other, state] : runs_) {
    const auto shot = coordinator.snapshot(world_.queue.now(), other);
    if (other == run || !shot) continue;
    if (shot->phase == core::RunPhase::kWaiting) return false;
    if (shot->phase == core::RunPhase::kPlacing && is_before(other, run)) return false;
  }
  return true;
}

Capacities PassCheck::capacities(const core::Coordinator& coordinator, const std::set<RunId>& without) const {
  Capacities capacities;
  for (const core::NodeSnapshot& row : coordinator.nodes()) {
    core::NodeCapacity& node = capacities[row.node];
    node.total = {row.slots, row.cpus, row.gpus, row.memory_bytes};
    node.free = node.total;
    node.counts_cpus = row.counts_cpus;
    node.labels = row.labels;
    node.out = row.reason;
    for (const auto& [run, workers] : row.runs)
      if (!without.contains(run)) core::take(node.free, runs_.at(run).plan.definition.job.per_worker, workers);
  }
  return capacities;
}

void PassCheck::on_first_start(const core::Coordinator& coordinator, const RunId& run) {
  const TimePoint now = world_.queue.now();
  const Capacities present = capacities(coordinator, {});
  std::set<NodeId> used;
  for (const core::NodeSnapshot& row : coordinator.nodes())
    if (row.runs.contains(run)) used.insert(row.node);
  for (const auto& [other, state] : runs_) {
    if (other == run || !submitted_.contains(other) || !is_before(other, run) || !waits(coordinator, other)) continue;
    std::set<RunId>& passers = passed_by_[other];
    passers.insert(run);
    const core::Demand demand = demand_of(other);
    const bool fits_idle = all_rooms(present, demand, true) >= demand.least;
    const auto since = startable_since_.find(other);
    if (since != startable_since_.end() && fits_idle && now > since->second + world_.plan.settings.backfill_limit)
      for (const NodeId& node : used)
        if (core::room_when_idle(node, present.at(node), demand) > 0)
          violated("{} passes {} on {}, which could have started {:.1f} s ago", run, other, node,
                   to_seconds(now - since->second));
    if (all_rooms(capacities(coordinator, passers), demand, false) >= demand.least)
      startable_since_.try_emplace(other, now);
  }
}

void PassCheck::on_growth(const core::Coordinator& coordinator, const RunId& run) const {
  Capacities nodes = capacities(coordinator, {});
  for (const auto& [other, state] : runs_) {
    if (other == run || !waits(coordinator, other)) continue;
    const core::Demand demand = demand_of(other);
    if (all_rooms(nodes, demand, true) < demand.least) continue;
    for (auto& [id, node] : nodes)
      if (core::room_when_idle(id, node, demand) > 0) node.free.slots = 0;
  }
  if (all_rooms(nodes, demand_of(run), false) == 0) violated("{} is to grow into room that a waiting run may use", run);
}

}  // namespace sgd::sim
