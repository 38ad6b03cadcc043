// What Cluster holds against orders and records that concern several runs or nodes.

#include <algorithm>

#include "test/sim/cluster.hpp"

namespace sgd::sim {

/// Nothing older runs on a node that still counts, and when all nodes are told, the ranks are right.
void Cluster::check_start(const RunId& id, const cluster::DesiredRun& desired) {
  RunState& run = runs_.at(id);
  for (Worker* worker : run.alive)
    if (!run.check.was_lost(worker->node().id(), worker->generation()) && !run.check.is_forgotten(worker->generation()))
      violated("{}: generation {} starts, and rank {} of generation {} lives on {}", id, desired.generation,
               worker->rank(), worker->generation(), worker->node().id());
  world_.queue.after(Duration{0}, [this, id, generation = desired.generation] {
    const RunState& told = runs_.at(id);
    if (is_crashed_ || told.check.generation() != generation || interrupted_[id] == generation) return;
    told.check.check_ranks();
  });
}

/// Its ranks leave because an operator wants so, whatever there is room for.
bool Cluster::is_on_drained(const RunId& run, const cluster::DesiredRun& desired) {
  if (desired.want != cluster::Want::kLeave) return false;
  const auto is_it = [&](const Node& one) {
    return known_.at(one.id()).is_drained && runs_.at(run).check.wanted_on(one.id()).value_or(0) > 0;
  };
  return std::any_of(nodes_.begin(), nodes_.end(), is_it);
}

void Cluster::check_place(const RunId& starting, const Node& place, std::size_t ranks) {
  // A generation that waited for its port was placed when it asked for one.
  const auto placed = placed_.find(starting);
  const bool is_command = placed != placed_.end();
  const KnownNode known = is_command ? placed->second.known.at(place.id()) : known_.at(place.id());
  if (known.is_drained) violated("{}: new ranks on {}, which is drained", starting, place.id());
  if (known.is_leaving) violated("{}: new ranks on {}, which is leaving", starting, place.id());
  runs_.at(starting).check.check_rules(place.id(), place.plan(), ranks);
  check_slots(starting, place, known);
}

void Cluster::check_slots(const RunId& starting, const Node& place, const KnownNode& known) {
  int held = 0;
  int cpus = 0;
  for (auto& [id, run] : runs_) {
    const auto wanted = run.check.wanted_on(place.id());
    // Told to go, or given up with their node, and not gone: processes count, whatever is wanted.
    const int alive = static_cast<int>(std::count_if(run.alive.begin(), run.alive.end(), [&](Worker* worker) {
      return &worker->node() == &place && !run.check.is_forgotten(worker->generation());
    }));
    const int here = id == starting && wanted ? *wanted : std::max(wanted.value_or(0), alive);
    held += here;
    cpus += here * run.plan.definition.job.per_worker.cpus;
  }
  const KnownNode present = known_.at(place.id());
  const int slots = std::max(known.slots(), present.slots());
  if (held > slots) violated("{}: {} ranks on {}, which has {} slots", starting, held, place.id(), slots);
  if (known.counts_cpus() && present.counts_cpus() && cpus > known.cpus)
    violated("{}: ranks on {} take {} cores, it has {}", starting, place.id(), cpus, known.cpus);
}

/// A node whose agent and link are well, and have been for longer than any delay, must not be given up.
void Cluster::check_loss(const nlohmann::ordered_json& event) {
  if (world_.plan.is_embedded) violated("{} is declared lost in its own process", event.at("node").dump());
  Node& lost = node(event.at("node"));
  if (lost.id() == removed_) return;
  // Who stood still judges by what came before.
  const TimePoint now = world_.queue.now();
  const TimePoint well = (now > late_until_ + kLossTime ? now : late_from_) - kLossTime;
  if (lost.is_up() && lost.wire().is_healthy() && lost.healthy_since() < well)
    violated("{} is declared lost, and is well", lost.id());
}

/// Runs that have ended are forgotten in the end.
void Cluster::check_memory() {
  if (is_replaying_) return;
  std::size_t finished = 0;
  // Trials go with their experiment.
  for (const RunId& id : coordinator_.core().runs())
    finished += !trials_.contains(id) &&
                coordinator_.core().snapshot(world_.queue.now(), id)->phase == core::RunPhase::kFinished;
  if (finished > world_.plan.settings.finished_max)
    violated("{} finished runs are kept, {} are allowed", finished, world_.plan.settings.finished_max);
}

void Cluster::check_end(const RunId& id) {
  RunState& run = runs_.at(id);
  for (Worker* worker : run.alive)
    if (!run.check.was_lost(worker->node().id(), worker->generation()) && !run.check.is_forgotten(worker->generation()))
      violated("{}: finished, and rank {} of generation {} lives on {}", id, worker->rank(), worker->generation(),
               worker->node().id());
}

}  // namespace sgd::sim
