#include "test/sim/pass_check.hpp"

#include <tuple>

namespace sgd::sim {

using Grounds = std::map<NodeId, Ground>;

namespace {

int all_rooms(const Grounds& grounds, const job::JobSpec& job, bool when_idle) {
  int all = 0;
  for (const auto& [id, ground] : grounds) all += room_on(ground, job, 0, when_idle);
  return all;
}

}  // namespace

const job::JobSpec& PassCheck::job_of(const RunId& run) const {
  return runs_.at(run).plan.definition.job;
}

/// Workers without which it does not start.
int PassCheck::least_of(const RunId& run) const {
  const job::JobSpec& job = job_of(run);
  const RunCheck& check = runs_.at(run).check;
  return check.generation() < check.first_generation() && !job.elastic_start ? job.num_workers : job.min_workers;
}

/// For its first start.
bool PassCheck::waits(const core::Coordinator& coordinator, const RunId& run) const {
  const auto shot = coordinator.snapshot(world_.queue.now(), run);
  return shot && shot->phase == core::RunPhase::kPlacing && !paused_.contains(run);
}

/// Owners take turns, by what they have: of their runs nobody says so.
bool PassCheck::is_of_another(const RunId& a, const RunId& b) const {
  return runs_.at(a).plan.definition.owner != runs_.at(b).plan.definition.owner;
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
    if (shot->phase == core::RunPhase::kPlacing && (is_of_another(other, run) || is_before(other, run))) return false;
  }
  return true;
}

Grounds PassCheck::grounds(const core::Coordinator& coordinator, const std::set<RunId>& without) const {
  Grounds grounds;
  for (const core::NodeSnapshot& row : coordinator.nodes()) {
    Ground& ground = grounds[row.node];
    const auto zone = row.labels.find("zone");
    ground.node = row.node;
    ground.zone = zone == row.labels.end() ? "" : zone->second;
    ground.slots = row.slots;
    ground.cpus = row.cpus;
    ground.gpus = row.gpus;
    ground.counts_cpus = row.counts_cpus;
    ground.is_open = row.phase == core::NodePhase::kReady;
    for (const auto& [run, workers] : row.runs)
      if (!without.contains(run)) ground.take(workers, job_of(run).per_worker);
  }
  return grounds;
}

void PassCheck::on_first_start(const core::Coordinator& coordinator, const RunId& run) {
  const TimePoint now = world_.queue.now();
  const Grounds present = grounds(coordinator, {});
  std::set<NodeId> used;
  for (const core::NodeSnapshot& row : coordinator.nodes())
    if (row.runs.contains(run)) used.insert(row.node);
  for (const auto& [other, state] : runs_) {
    if (other == run || !submitted_.contains(other) || is_of_another(other, run)) continue;
    if (!is_before(other, run) || !waits(coordinator, other)) continue;
    std::set<RunId>& passers = passed_by_[other];
    passers.insert(run);
    const job::JobSpec& job = job_of(other);
    const bool fits_idle = all_rooms(present, job, true) >= least_of(other);
    const auto since = startable_since_.find(other);
    if (since != startable_since_.end() && fits_idle && now > since->second + world_.plan.settings.backfill_limit)
      for (const NodeId& node : used)
        if (room_on(present.at(node), job, 0, true) > 0)
          violated("{} passes {} on {}, which could have started {:.1f} s ago", run, other, node,
                   to_seconds(now - since->second));
    if (all_rooms(grounds(coordinator, passers), job, false) >= least_of(other))
      startable_since_.try_emplace(other, now);
  }
}

void PassCheck::on_growth(const core::Coordinator& coordinator, const RunId& run) const {
  Grounds present = grounds(coordinator, {});
  RunId waiting;
  for (const auto& [other, state] : runs_) {
    if (other == run || !waits(coordinator, other)) continue;
    if (all_rooms(present, job_of(other), true) < least_of(other)) continue;
    waiting = other;
    for (auto& [id, ground] : present)
      if (room_on(ground, job_of(other), 0, true) > 0) ground.slots_taken = ground.slots;
  }
  if (all_rooms(present, job_of(run), false) > 0) return;
  if (waiting.empty()) violated("{} is to grow, and there is no room", run);
  violated("{} is to grow into room that {} may use, which waits", run, waiting);
}

}  // namespace sgd::sim
