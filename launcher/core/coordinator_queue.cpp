// How Coordinator divides what is free: makes the queue's values from nodes and runs, and tells runs what
// they may have.

#include <algorithm>
#include <tuple>

#include "launcher/core/coordinator.hpp"

namespace sgd::core {

/// Runs on nodes that end, and on nodes with fewer slots than are held: the least important give theirs up
/// first.
void Coordinator::take_back_slots(TimePoint now, CoordinatorCommands& out) {
  for (const NodeId& id : changed_nodes_) {
    const auto node = nodes_.find(id);
    if (node == nodes_.end()) continue;
    const bool is_leaving = node->second.state.is_leaving;
    int over = -slots_of(node->second, condition(id));
    for (const auto& [run, machine] : live_) over += machine->slots_used(id);
    if (over <= 0 && !is_leaving) continue;
    for (RunMachine* run : least_important_first()) {
      if (over <= 0 && !is_leaving) break;
      const int held = run->slots_used(id);
      if (held == 0) continue;
      run->on_slots_lost(now, id, is_leaving ? id + " is leaving" : "slots lost on " + id, out);
      over -= held;
    }
  }
}

Duration Coordinator::offer_gap() const {
  if (nodes_.size() <= settings_.offered_at_once) return Duration{0};
  return settings_.offer_gap * static_cast<std::int64_t>(nodes_.size());
}

/// Runs hear of what has changed on their nodes.
void Coordinator::tell_views(TimePoint now, CoordinatorCommands& out) {
  if (changed_nodes_.empty()) return;
  for (const auto& [id, run] : live_)
    for (const NodeId& node : changed_nodes_)
      if (nodes_.contains(node)) run->on_view(now, node, view_of(node), out);
}

/// Those that wait are told what they may have now, in the order of the queue; returns how many workers each of the
/// others may have more.
std::map<RunId, int> Coordinator::offer_capacity(TimePoint now, CoordinatorCommands& out) {
  const auto is_served = [](const auto& run) { return run.second->waits_for_room() || run.second->may_grow(); };
  QueuePlan plan;
  if (std::any_of(live_.begin(), live_.end(), is_served)) {
    plan = serve_queue(queue_state(now, offers()));
    offered_at_ = now;
  }
  note_starts(plan);
  std::set<RunId> waiting;
  for (QueueTurn& turn : plan.turns) {
    Offer offer;
    for (const NodePlace& place : turn.placement.nodes)
      offer.nodes.emplace_hint(offer.nodes.end(), place.node, view_of(place.node));
    offer.placement = std::move(turn.placement);
    offer.reason = std::move(turn.reason);
    offer.fits_idle = turn.fits_idle;
    waiting.insert(turn.run);
    runs_.at(turn.run).on_capacity(now, std::move(offer), out);
  }
  for (const auto& [id, run] : live_)
    if (!waiting.contains(id) && run->wants_capacity()) run->on_capacity(now, Offer(), out);
  return plan.growth;
}

/// Last, when all who wait have what they get: a run that leaves for room which another one is given then has been
/// interrupted for nothing. False: there was nothing to offer.
bool Coordinator::offer_growth(TimePoint now, const std::map<RunId, int>& growth, CoordinatorCommands& out) {
  for (const auto& [id, workers] : growth) {
    Offer offer;
    offer.growth = workers;
    if (const auto run = live_.find(id); run != live_.end() && !run->second->waits_for_room())
      run->second->on_capacity(now, std::move(offer), out);
  }
  if (growth.empty()) return false;
  note_all_touched();
  advance_all(now, out);
  return true;
}

NodeView Coordinator::view_of(const NodeId& node) const {
  const Node& known = nodes_.at(node);
  const NodeCondition* its = condition(node);
  return {known.state.address, known.is_closed, its != nullptr && its->is_drained, known.state.is_leaving};
}

/// Who starts has passed those in front of it that do not.
void Coordinator::note_starts(const QueuePlan& plan) {
  std::vector<RunId> behind;  // Who start, of those behind the one in work.
  for (auto turn = plan.turns.rbegin(); turn != plan.turns.rend(); ++turn) {
    Ticket& ticket = tickets_.at(turn->run);
    if (turn->placement.world_size > 0) {
      ticket.passed_by.clear();
      ticket.gave_way = false;
      ticket.startable_since.reset();
      behind.push_back(turn->run);
      continue;
    }
    ticket.startable_since = turn->startable_since;
    ticket.passed_by.insert(behind.begin(), behind.end());
  }
}

QueueState Coordinator::queue_state(TimePoint now, const NodeOffers& offers) const {
  QueueState state;
  state.now = now;
  state.backfill_limit = settings_.backfill_limit;
  state.holdings = holdings();
  state.nodes = capacities(offers, state.holdings);
  for (const auto& [id, machine] : live_) {
    const RunMachine& run = *machine;
    if (run.finished()) continue;
    const Ticket& ticket = tickets_.at(id);
    const int priority = run.definition().priority;
    if (run.waits_for_room())
      state.waiting.push_back({id, run.definition().owner, run.is_admitted() && !ticket.gave_way, priority,
                               ticket.submission, demand_of(run), run.placement(), ticket.passed_by,
                               ticket.startable_since});
    if (run.may_grow())
      state.growing.push_back({id, priority, ticket.submission, demand_of(run), run.placement().world_size});
  }
  return state;
}

/// A GPU that the run does without and that another one holds is none of those that are free.
Demand Coordinator::demand_of(const RunMachine& run) const {
  Demand demand = run.demand();
  for (const LeftOutGpu& one : run.gpus_left_out()) {
    const auto holds = [&](const auto& other) { return other.second->holds_gpu(one.node, one.gpu); };
    if (std::any_of(live_.begin(), live_.end(), holds)) --demand.left_out.at(one.node).free;
  }
  return demand;
}

std::map<RunId, Holding> Coordinator::holdings() const {
  std::map<RunId, Holding> holdings;
  for (const auto& [id, run] : live_)
    if (!run->finished()) holdings[id] = {run->definition().job.per_worker, run->held(), run->definition().owner};
  return holdings;
}

bool Coordinator::asks_for_labels() const {
  return std::any_of(live_.begin(), live_.end(),
                     [](const auto& run) { return !run.second->definition().job.placement.labels.empty(); });
}

/// Made when a node has changed since. Labels only where somebody asks for one: copying those of ten thousand nodes
/// would be most of the work.
const NodeOffers& Coordinator::offers() {
  const bool with_labels = asks_for_labels();
  if (!offers_ || (with_labels && !offers_->has_labels)) offers_ = make_offers(with_labels);
  return *offers_;
}

NodeOffers Coordinator::make_offers(bool with_labels) const {
  NodeOffers offers;
  offers.has_labels = with_labels;
  offers.nodes.reserve(nodes_.size());
  for (const auto& [id, node] : nodes_) {
    const NodeCondition* its = condition(id);
    NodeCapacity& capacity = offers.nodes.emplace_hint(offers.nodes.end(), id, NodeCapacity{})->second;
    capacity.total = {slots_of(node, its), node.state.cpus, node.state.gpus, node.state.memory_bytes};
    capacity.free = capacity.total;
    capacity.counts_cpus = node.state.counts_cpus && (its == nullptr || !its->slots);
    if (with_labels) capacity.labels = node.state.labels;
    capacity.out = why_out(node, its);
    if (!node.leftovers.empty()) offers.with_leftovers.push_back(id);
  }
  return offers;
}

Capacities Coordinator::capacities(const NodeOffers& offers, const std::map<RunId, Holding>& holdings) const {
  Capacities capacities = offers.nodes;
  for (const NodeId& id : offers.with_leftovers)
    for (const auto& [run, left] : nodes_.at(id).leftovers) {
      // A run that is there again starts its ranks when those before are dead.
      const auto again = holdings.find(run);
      const bool is_there = again != holdings.end() && again->second.workers.contains(id);
      const int workers = std::max(left.workers - (is_there ? again->second.workers.at(id) : 0), 0);
      take(capacities.at(id).free, left.per_worker, workers);
    }
  for (const auto& [run, holding] : holdings) {
    auto capacity = capacities.end();
    for (const auto& [node, workers] : holding.workers) {  // Most stand side by side.
      if (capacity == capacities.end() || capacity->first != node) capacity = capacities.find(node);
      if (capacity == capacities.end()) continue;
      take(capacity->second.free, holding.per_worker, workers);
      ++capacity;
    }
  }
  return capacities;
}

/// Ranks have a GPU that another run does without: for that one more may be free than it was offered.
bool Coordinator::tells_of_left_out(const NodeId& node, const cluster::FactBody& body) const {
  const auto* started = std::get_if<cluster::WorkerStarted>(&body);
  if (started == nullptr || started->gpus.empty()) return false;
  return std::any_of(live_.begin(), live_.end(), [&](const auto& run) {
    return std::any_of(started->gpus.begin(), started->gpus.end(),
                       [&](const std::string& gpu) { return run.second->does_without(node, gpu); });
  });
}

std::vector<RunMachine*> Coordinator::least_important_first() const {
  std::vector<std::tuple<int, std::int64_t, RunMachine*>> ranked;
  for (const auto& [id, run] : live_)
    if (!run->finished()) ranked.emplace_back(run->definition().priority, -tickets_.at(id).submission, run);
  std::sort(ranked.begin(), ranked.end());
  std::vector<RunMachine*> order;
  for (const auto& [priority, submission, run] : ranked) order.push_back(run);
  return order;
}

OwnerLoad Coordinator::load_of(const std::string& owner) const {
  OwnerLoad load;
  for (const auto& [id, experiment] : experiments_) {
    if (experiment.finished()) continue;
    ++load.live_of_all;
    if (experiment.definition().owner == owner) ++load.live;
  }
  for (const auto& [id, run] : live_) {
    if (run->definition().parent) continue;  // Its experiment counts, as one run.
    ++load.live_of_all;
    if (run->definition().owner != owner) continue;
    ++load.live;
    if (run->waits_for_room() && !run->is_admitted()) ++load.queued;
  }
  return load;
}

Explanation Coordinator::explain(TimePoint now, const RunDefinition& run) const {
  const RunMachine machine(run, now);
  WaitingRun candidate;
  candidate.run = run.id;
  candidate.owner = run.owner;
  candidate.priority = run.priority;
  candidate.submission = submissions_ + 1;
  candidate.demand = machine.demand();
  const bool with_labels = asks_for_labels() || !candidate.demand.rules.labels.empty();
  return core::explain(queue_state(now, make_offers(with_labels)), candidate);
}

}  // namespace sgd::core
