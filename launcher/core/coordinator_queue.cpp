// How Coordinator divides what is free: makes the queue's values from nodes and runs, and tells runs what
// they may have.

#include <algorithm>
#include <tuple>

#include "launcher/core/coordinator.hpp"

namespace sgd::core {

/// Runs on nodes that end, and on nodes with fewer slots than are held: the least important give theirs up
/// first.
void Coordinator::take_back_slots(TimePoint now, CoordinatorCommands& out) {
  const std::vector<RunId> order = least_important_first();
  for (const auto& [id, capacity] : capacities()) {
    const bool is_leaving = nodes_.at(id).state.is_leaving;
    int over = -capacity.free.slots;
    for (auto run = order.begin(); run != order.end() && (over > 0 || is_leaving); ++run) {
      RunMachine& machine = runs_.at(*run);
      const int held = machine.slots_used(id);
      if (held == 0) continue;
      machine.on_slots_lost(now, id, is_leaving ? id + " is leaving" : "slots lost on " + id, out);
      over -= held;
    }
  }
}

/// Every run is told what it may have now: those that wait in the order of the queue, then the others.
void Coordinator::offer_capacity(TimePoint now, CoordinatorCommands& out) {
  const QueuePlan plan = serve_queue(queue_state(now));
  note_starts(plan);
  Offer offer;
  for (const auto& [id, node] : nodes_) {
    const Standing* its = standing(id);
    offer.nodes[id] = NodeView{node.state.address, node.is_closed, its != nullptr && its->is_drained};
  }
  for (const QueueTurn& turn : plan.turns) {
    offer.placement = turn.placement;
    offer.reason = turn.reason;
    offer.fits_idle = turn.fits_idle;
    runs_.at(turn.run).on_capacity(now, offer, out);
  }
  const auto is_served = [&plan](const RunId& id) {
    return std::any_of(plan.turns.begin(), plan.turns.end(),
                       [&id](const QueueTurn& turn) { return turn.run == id; });
  };
  offer.placement = {};
  offer.reason.clear();
  offer.fits_idle = false;
  for (auto& [id, run] : runs_) {
    if (run.finished() || is_served(id)) continue;
    const auto growth = plan.growth.find(id);
    offer.growth = growth == plan.growth.end() ? 0 : growth->second;
    run.on_capacity(now, offer, out);
  }
}

/// Who starts has passed those in front of it that do not.
void Coordinator::note_starts(const QueuePlan& plan) {
  for (auto turn = plan.turns.begin(); turn != plan.turns.end(); ++turn) {
    Ticket& ticket = tickets_.at(turn->run);
    if (turn->placement.world_size > 0) {
      ticket.passed_by.clear();
      ticket.startable_since.reset();
      continue;
    }
    ticket.startable_since = turn->startable_since;
    for (auto later = turn + 1; later != plan.turns.end(); ++later)
      if (later->placement.world_size > 0) ticket.passed_by.insert(later->run);
  }
}

QueueState Coordinator::queue_state(TimePoint now) const {
  QueueState state;
  state.now = now;
  state.backfill_limit = settings_.backfill_limit;
  state.nodes = capacities();
  for (const auto& [id, run] : runs_) {
    if (run.finished()) continue;
    const Ticket& ticket = tickets_.at(id);
    const RunDefinition& definition = run.definition();
    if (run.waits_for_room())
      state.waiting.push_back({id, run.is_admitted(), definition.priority, ticket.submission, run.demand(),
                               run.placement(), ticket.passed_by, ticket.startable_since});
    if (run.may_grow())
      state.growing.push_back(
          {id, definition.priority, ticket.submission, run.demand(), run.placement().world_size});
    state.holdings[id] = {definition.job.per_worker, run.held()};
  }
  return state;
}

std::map<NodeId, NodeCapacity> Coordinator::capacities() const {
  std::map<NodeId, NodeCapacity> capacities;
  for (const auto& [id, node] : nodes_) {
    const Standing* its = standing(id);
    NodeCapacity& capacity = capacities[id];
    capacity.total = {slots_of(id, node), node.state.cpus, node.state.gpus, node.state.memory_bytes};
    capacity.free = capacity.total;
    capacity.counts_cpus = node.state.counts_cpus && (its == nullptr || !its->slots);
    capacity.labels = node.state.labels;
    capacity.out = why_out(id, node);
  }
  for (const auto& [id, run] : runs_)
    for (const auto& [node, workers] : run.held())
      if (capacities.contains(node)) take(capacities.at(node).free, run.definition().job.per_worker, workers);
  return capacities;
}

std::vector<RunId> Coordinator::least_important_first() const {
  std::vector<RunId> order;
  for (const auto& [id, run] : runs_)
    if (!run.finished()) order.push_back(id);
  const auto rank = [this](const RunId& id) {
    return std::tuple(runs_.at(id).definition().priority, -tickets_.at(id).submission);
  };
  std::sort(order.begin(), order.end(),
            [&rank](const RunId& a, const RunId& b) { return rank(a) < rank(b); });
  return order;
}

Explanation Coordinator::explain(TimePoint now, const RunDefinition& run) const {
  const RunMachine machine(run, now);
  WaitingRun candidate;
  candidate.run = run.id;
  candidate.priority = run.priority;
  candidate.submission = submissions_ + 1;
  candidate.demand = machine.demand();
  return core::explain(queue_state(now), candidate);
}

}  // namespace sgd::core
