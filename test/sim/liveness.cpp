#include "test/sim/liveness.hpp"

#include <algorithm>
#include <cmath>

#include "test/sim/faults.hpp"
#include "test/sim/room.hpp"

namespace sgd::sim {

using std::chrono::seconds;

/// With one rank, and a checkpoint that holds every step.
Duration Liveness::longest_epoch(const RunPlan& plan) {
  if (!plan.definition.job.training) return plan.command_time;
  const std::int64_t batch = plan.definition.job.training->batch_size / plan.definition.job.num_workers;
  const std::int64_t steps = (plan.train_samples + plan.validation_samples) / std::max<std::int64_t>(batch, 1) + 2;
  return (plan.step_time * 3 / 2 + plan.write_time) * steps;
}

Duration Liveness::bound(const RunPlan& plan, int) {
  const job::JobSpec& job = plan.definition.job;
  const double longest_wait =
      to_seconds(job.recovery.backoff.first) * std::pow(job.recovery.backoff.factor, job.recovery.backoff.attempts);
  const Duration start = seconds(60) + job.heartbeat.timeout + job.heartbeat.stall_timeout;
  return kHealing + plan.definition.placement_timeout + from_seconds(longest_wait) + start * 3 + job.stop.grace +
         job.recovery.cooldown + longest_epoch(plan) * 3 + seconds(60);
}

/// By what runs there and what is wanted, whatever the coordinator believes of its nodes.
int Liveness::room_for(const RunState& run) {
  int room = 0;
  for (const Node& node : cluster_.nodes()) {
    const KnownNode known = cluster_.known().at(node.id());
    Ground ground;
    ground.node = node.id();
    ground.zone = node.plan().zone;
    ground.slots = known.ordered.value_or(node.slots());
    ground.cpus = node.plan().cpus;
    ground.gpus = node.plan().gpus;
    ground.gpus_left_out = cluster_.gpus().left_out(cluster_.runs(), run, node);
    ground.counts_cpus = node.plan().counts_cpus && !known.ordered;
    ground.is_open = node.is_up() && !known.is_drained && !run.check.was_refused_by(node.id());
    int own = 0;
    for (const auto& [id, other] : cluster_.runs()) {
      const auto is_here = [&](Worker* worker) { return &worker->node() == &node; };
      const int alive = static_cast<int>(std::count_if(other.alive.begin(), other.alive.end(), is_here));
      // A rank that has ended keeps its place until its generation does.
      const int taken = std::max(alive, other.check.wanted_on(node.id()).value_or(0));
      ground.take(taken, other.plan.definition.job.per_worker);
      if (&other == &run) own = taken;
    }
    room += room_on(ground, run.plan.definition.job, own, false);
  }
  return room;
}

bool Liveness::others_wait(const RunId& id) {
  for (const auto& [other, run] : cluster_.runs()) {
    const auto shot = cluster_.coordinator().snapshot(world_.queue.now(), other);
    if (other == id || !shot) continue;
    if (shot->phase == core::RunPhase::kPlacing || shot->phase == core::RunPhase::kWaiting) return true;
  }
  return false;
}

/// Some of what is free may be for a run that leaves to begin again with more, or that recovers; and what one that
/// recovers or ends has left is free when its nodes have said so.
bool Liveness::others_move(const RunId& id) {
  for (const auto& [other, run] : cluster_.runs()) {
    if (other == id || run.check.finished()) continue;
    if (run.check.is_leaving()) return true;
    const auto shot = cluster_.coordinator().snapshot(world_.queue.now(), other);
    if (shot && (shot->phase == core::RunPhase::kRecovering || shot->phase == core::RunPhase::kClearing)) return true;
  }
  return false;
}

/// A command of which no rank is done, and none is on a node that would not have it again.
bool Liveness::may_grow_at_once(const RunState& run, int world_size) {
  const job::JobSpec& job = run.plan.definition.job;
  const bool is_whole = static_cast<int>(run.alive.size()) == world_size;
  if (job.recovery.scale_up != "at_once" || world_size >= job.num_workers || !is_whole) return false;
  return std::none_of(run.alive.begin(), run.alive.end(),
                      [this](Worker* worker) { return cluster_.known().at(worker->node().id()).is_drained; });
}

/// Of a trial: nobody wants it to be at work.
bool Liveness::is_unwanted(const RunId& id, RunState& run) {
  const ExperimentCheck* parent = cluster_.parent_of(run);
  return parent != nullptr && (!run.is_begun || parent->is_paused(id));
}

std::string Liveness::trouble_of(const RunId& id, RunState& run) {
  if (is_unwanted(id, run)) return "";
  if (run.check.finished()) {
    for (const Node& node : cluster_.nodes()) {
      const auto keeper = node.keepers().find(id);
      if (keeper != node.keepers().end() && keeper->second->alive())
        return fmt::format("has a keeper on {}", node.id());
    }
    return run.alive.empty() ? "" : "has finished, and processes are left";
  }
  if (!cluster_.coordinator_alive()) return "has no coordinator";
  const auto shot = cluster_.coordinator().snapshot(world_.queue.now(), id);
  if (!shot) return cluster_.is_refused(id) ? "" : "it is not known";
  const job::JobSpec& job = run.plan.definition.job;
  const int wanted =
      shot->generation < run.check.first_generation() && !job.elastic_start ? job.num_workers : job.min_workers;
  const int free = room_for(run);
  const bool waits = shot->phase == core::RunPhase::kPlacing || shot->phase == core::RunPhase::kWaiting;
  // What is free may be kept for a run in front of it.
  const bool is_first = cluster_.passes().is_first(cluster_.coordinator(), id);
  if (waits && (free < wanted || !is_first) && cluster_.runs().size() > 1) return "";
  if (shot->phase != core::RunPhase::kRunning) room_since_.erase(id);
  if (shot->phase != core::RunPhase::kRunning)
    return fmt::format("is {} in generation {}: {}", core::name(shot->phase), shot->generation, shot->reason);
  if (!job.training) {
    if (free > 0 && may_grow_at_once(run, shot->world_size) && !others_wait(id) && !others_move(id))
      check_growth(id, run);
    else
      room_since_.erase(id);
    return "";
  }
  for (Worker* worker : run.alive)
    if (cluster_.known().at(worker->node().id()).is_drained && !run.check.is_leaving())
      return "has ranks on a drained node";
  if (shot->world_size >= job.num_workers || free <= 0 || others_wait(id)) {
    room_since_.erase(id);
  } else {
    if (others_move(id)) room_since_.erase(id);
    check_growth(id, run);
    return fmt::format("has {} of {} workers, and {} slots are free", shot->world_size, job.num_workers, free);
  }
  const auto group = run.groups.find(shot->generation);
  const std::int64_t steps = group == run.groups.end() ? 0 : group->second->steps() + run.check.lines();
  const std::int64_t before = steps_at_calm_.try_emplace(id, steps).first->second;
  if (steps == before) return "does not get on";
  return "";
}

/// Room for more ranks is used at the next boundary; that they are to leave there is told when the cooldown is over.
void Liveness::check_growth(const RunId& id, const RunState& run) {
  const TimePoint now = world_.queue.now();
  if (run.plan.definition.job.per_worker.gpus > 0 && cluster_.gpus().has_forgotten()) return;
  if (now < world_.begin + world_.plan.trouble + kHealing + world_.plan.settings.stable_after) return;
  const TimePoint since = room_since_.try_emplace(id, now).first->second;
  const Duration limit = run.plan.definition.job.recovery.cooldown + seconds(5) + Log::kCommitMost;
  if (!run.check.is_leaving() && now > since + limit)
    violated("{} has had room to grow for {} s", id, to_seconds(now - since));
}

bool Liveness::all_well() {
  bool well = true;
  for (auto& [id, run] : cluster_.runs()) {
    // Trials come and go, so that never all are well at one time: each of them is to be, once.
    if (was_well_.contains(id) && !run.plan.definition.parent) continue;
    const std::string trouble = trouble_of(id, run);
    if (trouble.empty() && !cluster_.experiments().empty()) was_well_.insert(id);
    if (trouble.empty()) continue;
    well = false;
    const Duration limit = bound(run.plan, 0) + world_.plan.settings.stable_after;
    const TimePoint from = cluster_.submitted_at(id).value_or(world_.begin + run.plan.submit_after);
    if (world_.queue.now() > std::max(from, world_.begin + world_.plan.trouble) + run.plan.submit_after + limit)
      violated("{} s after the last fault, {} {}", to_seconds(limit), id, trouble);
  }
  return well;
}

bool Liveness::all_finished() const {
  for (const auto& [id, run] : cluster_.runs())
    if (!run.check.finished() && run.is_begun) return false;
  const auto& experiments = cluster_.experiments();
  return std::all_of(experiments.begin(), experiments.end(), [](const auto& one) { return one.second.finished(); });
}

}  // namespace sgd::sim
