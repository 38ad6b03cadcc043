// What Coordinator knows of nodes: their state, their links, what operators want of them, who is lost.

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "launcher/core/claims.hpp"
#include "launcher/core/coordinator.hpp"

namespace sgd::core {
namespace {

cluster::DesiredRun gone(const RunId& run, Generation generation) {
  cluster::DesiredRun desired;
  desired.run = run;
  desired.generation = generation;
  desired.want = cluster::Want::kGone;
  desired.job = nlohmann::json::object();
  return desired;
}

/// To runs: not who its agent is, nor what it holds.
bool offers_the_same(const cluster::NodeState& a, const cluster::NodeState& b) {
  return a.address == b.address && a.slots == b.slots && a.cpus == b.cpus && a.counts_cpus == b.counts_cpus &&
         a.gpus == b.gpus && a.memory_bytes == b.memory_bytes && a.labels == b.labels && a.is_leaving == b.is_leaving;
}

}  // namespace

/// Two agents of one name must not take turns: the one that is there stays. An agent that was started anew is
/// let in when the link of the one before is closed, or silent for node_timeout.
std::optional<coordinator_command::RefuseAgent> Coordinator::refusal(TimePoint now,
                                                                     const CoordinatorEvent& event) const {
  const auto* arrived = std::get_if<coordinator_event::FromAgent>(&event);
  const auto* state = arrived == nullptr ? nullptr : std::get_if<cluster::NodeState>(&arrived->message);
  if (state == nullptr || !settings_.node_timeout) return std::nullopt;
  const auto known = nodes_.find(arrived->node);
  if (known == nodes_.end() || known->second.incarnation == state->incarnation) return std::nullopt;
  if (known->second.is_closed || !known->second.is_linked) return std::nullopt;
  const Duration silent = now - known->second.heard_at;
  if (silent >= *settings_.node_timeout) return std::nullopt;
  std::string reason =
      fmt::format("an agent with the name {} is connected from {}, heard {:.1f} s ago: give each its own --name",
                  arrived->node, known->second.state.address, to_seconds(silent));
  return coordinator_command::RefuseAgent{arrived->node, state->incarnation, std::move(reason)};
}

LinkNumber Coordinator::link_of(const NodeId& node) const {
  const auto known = link_of_.find(node);
  return known == link_of_.end() ? 0 : known->second;
}

/// What it has, or what is left on it, is another: that counts for all who wait.
void Coordinator::note_node_changed() {
  offers_.reset();
  capacity_changed_ = true;
}

void Coordinator::on_agent(TimePoint now, const NodeId& node, const cluster::FromAgent& message,
                           CoordinatorCommands& out) {
  if (const auto* state = std::get_if<cluster::NodeState>(&message)) return on_state(now, node, *state, out);
  Node* known = find_sender(now, node, out);
  if (known == nullptr) return;  // Its first message must be its state.
  note_heard(now, node, *known);
  if (const auto* fact = std::get_if<cluster::Fact>(&message)) {
    on_fact(now, node, *known, *fact, out);
  } else if (const auto* ask = std::get_if<cluster::ExchangeAsk>(&message)) {
    const auto run = runs_.find(ask->run);
    if (run != runs_.end()) return run->second.on_exchange_ask(node, *ask, out);
    out.push_back(coordinator_command::SendToAgent{node, not_finished(*ask)});
  } else if (const auto* progress = std::get_if<cluster::Progress>(&message)) {
    const auto run = runs_.find(progress->run);
    if (run != runs_.end()) run->second.on_progress(now, node, *progress);
  }
}

/// A node that was lost and goes on talking over the same link was cut off without noticing: it is told what
/// is wanted.
Coordinator::Node* Coordinator::find_sender(TimePoint now, const NodeId& node, CoordinatorCommands& out) {
  const auto known = nodes_.find(node);
  if (known != nodes_.end()) return &known->second;
  auto lost = lost_.extract(node);
  if (lost.empty()) return nullptr;
  Node& back = nodes_.insert(std::move(lost)).position->second;
  note_heard(now, node, back);
  back.is_closed = false;
  back.lost_at.reset();
  note_node_changed();
  changed_nodes_.insert(node);
  note_back(now, node);
  for (auto& [id, run] : runs_)
    if (run.has_touched(node)) run.on_node_back(now, node, {id, 0}, out);
  for (const auto& [run, generation] : std::exchange(back.forgotten, {}))
    out.push_back(coordinator_command::SendToAgent{node, gone(run, generation)});
  return &back;
}

/// A node is new, is back, or has changed. What it holds is compared with what is wanted.
void Coordinator::on_state(TimePoint now, const NodeId& node, const cluster::NodeState& state,
                           CoordinatorCommands& out) {
  for (const cluster::HeldRun& held : state.runs)
    if (const auto run = runs_.find(held.run); run != runs_.end()) run->second.note_held(held);
  // What it has said before an order reached it tells nothing of ranks that the order has started.
  if (!state.is_new_link) (void)find_sender(now, node, out);
  const auto place = nodes_.find(node);
  const bool is_restarted = place != nodes_.end() && place->second.incarnation != state.incarnation;
  // Facts that it has forgotten, trusting an acknowledgement, and that are not known here: the store has lost its end.
  const bool is_ahead = place != nodes_.end() && !is_restarted && state.acknowledged > place->second.last_fact;
  if (is_restarted) lose(now, node, "its agent was restarted", 0, out);
  if (is_ahead) lose(now, node, "the coordinator has lost what it had acknowledged", 0, out);
  const bool is_new = !nodes_.contains(node);
  Node& known = nodes_[node];
  const bool is_back = is_new || known.is_closed || state.is_new_link;
  offers_.reset();  // What is left of runs may be more.
  // After a restart of this process all nodes say again what is known of them: that concerns nobody.
  if (is_new || known.is_closed || !offers_the_same(known.state, state)) {
    note_node_changed();
    room_changed_ = true;
    changed_nodes_.insert(node);
  }
  if (is_new) known.last_fact = state.acknowledged;
  if (const auto lost = lost_.extract(node); !lost.empty() && lost.mapped().incarnation == state.incarnation) {
    known.last_fact = std::max(lost.mapped().last_fact, state.acknowledged);  // Numbers of one incarnation go on.
    known.leftovers = std::move(lost.mapped().leftovers);
  }
  note_leftovers(node, known, state);
  known.incarnation = state.incarnation;
  if (state.is_new_link) link_of_[node] = ++links_;
  known.state = state;
  known.state.runs.clear();
  if (!std::exchange(known.is_linked, true)) back_at_ = now;
  note_heard(now, node, known);
  if (is_new || known.is_closed) note_back(now, node);
  known.is_closed = false;
  if (is_back) tell_again(now, node, state, out);
}

CoordinatorState::Leftover Coordinator::leftover(const RunMachine& run, int workers) {
  return {run.definition().job.per_worker, workers, run.desired_generation(), run.desired_uid(), false};
}

/// What it says of itself is what is there.
void Coordinator::note_leftovers(const NodeId& node, Node& known, const cluster::NodeState& state) {
  std::set<RunId> held;
  for (const cluster::HeldRun& one : state.runs)
    if (one.workers > 0) held.insert(one.run);
  // Of a run that is known, ranks may have been ordered that this state was said before; of another one, none.
  const auto is_gone = [&](const auto& left) {
    return !held.contains(left.first) && (state.is_new_link || left.second.is_foreign);
  };
  if (std::erase_if(known.leftovers, is_gone) > 0) note_node_changed();
  for (const cluster::HeldRun& one : state.runs) {
    const auto run = runs_.find(one.run);
    const bool is_known = run != runs_.end();
    if (one.workers <= 0 || (is_known && run->second.slots_used(node) > 0)) continue;
    if (state.is_new_link || !is_known) known.leftovers.erase(one.run);
    const Leftover said =
        is_known ? leftover(run->second, one.workers) : Leftover{{}, one.workers, one.generation, one.uid, true};
    // Over one link, the end that is awaited is that of the order which they were given up with.
    const auto [left, is_new] = known.leftovers.try_emplace(one.run, said);
    if (!is_new) left->second.workers = std::max(left->second.workers, one.workers);
  }
  // It is its own room that is offered again.
  while (known.leftovers.size() > kNodeRunsMax) known.leftovers.erase(known.leftovers.begin());
}

void Coordinator::tell_again(TimePoint now, const NodeId& node, const cluster::NodeState& state,
                             CoordinatorCommands& out) {
  for (const cluster::HeldRun& held : state.runs) {
    const auto run = runs_.find(held.run);
    if (run != runs_.end()) {
      run->second.on_node_back(now, node, held, out);
    } else {
      out.push_back(coordinator_command::SendToAgent{node, gone(held.run, held.generation)});
    }
  }
  std::set<RunId> held_here;
  for (const cluster::HeldRun& held : state.runs) held_here.insert(held.run);
  for (const auto& [id, run] : live_) {
    const bool is_held = held_here.contains(id);
    if (!is_held && (run->slots_used(node) > 0 || run->is_clearing(node))) run->on_node_back(now, node, {id, 0}, out);
  }
}

void Coordinator::on_closed(TimePoint now, const NodeId& node) {
  const auto known = nodes_.find(node);
  if (known == nodes_.end()) return;
  if (!known->second.is_closed) note_flap(now, node);
  known->second.is_closed = true;
  note_node_changed();
  changed_nodes_.insert(node);
}

/// As the watchdog looks for ranks: nobody is judged by a late clock, nor before a second look.
std::vector<NodeId> Coordinator::silent_nodes(TimePoint now) {
  std::vector<NodeId> silent;
  if (looks_.empty()) return silent;
  const bool is_late = now >= looks_.begin()->first + kLateTick;
  std::vector<NodeId> due;
  for (auto look = looks_.begin(); look != looks_.end() && look->first <= now; ++look) due.push_back(look->second);
  std::sort(due.begin(), due.end());
  for (const NodeId& id : due) {
    Node& node = nodes_.at(id);
    if (!node.is_linked && now < time_to_come_back()) {
      node.suspect_until = time_to_come_back();
      note_look(id, node);
    } else if (is_late) {
      note_heard(now, id, node);
    } else if (!node.suspect_until) {
      node.suspect_until = now + kSecondLook;
      note_look(id, node);
    } else {
      silent.push_back(id);
    }
  }
  return silent;
}

/// Nodes that this process has been told of by nobody but its store are silent for as long as their turn has not come.
TimePoint Coordinator::time_to_come_back() const {
  const auto slowly = std::chrono::seconds(nodes_.size() / kSlowlyBackPerSecond);
  return std::min(back_at_.value_or(restarted_at_), restarted_at_ + slowly) + *settings_.node_timeout;
}

TimePoint Coordinator::next_look(const Node& node) const {
  const Duration time = *settings_.node_timeout + (node.is_linked ? Duration{} : time_to_be_back_);
  return node.suspect_until.value_or(node.heard_at + time);
}

void Coordinator::note_heard(TimePoint now, const NodeId& id, Node& node) {
  node.heard_at = now;
  node.suspect_until.reset();
  note_look(id, node);
}

void Coordinator::note_look(const NodeId& id, Node& node) {
  if (!settings_.node_timeout) return;
  const TimePoint at = next_look(node);
  if (node.look_at == at) return;
  drop_look(id, node);
  node.look_at = at;
  looks_.emplace(at, id);
}

void Coordinator::drop_look(const NodeId& id, Node& node) {
  if (node.look_at) looks_.erase({*node.look_at, id});
  node.look_at.reset();
}

/// Those of an older generation may be there still: an order to begin with a newer one may not have come.
void Coordinator::note_leftover(Node& lost, const RunMachine& run, int workers) {
  Leftover& left = lost.leftovers[run.definition().id];
  left = leftover(run, std::max(workers, left.workers));
}

void Coordinator::lose(TimePoint now, const NodeId& node, const std::string& reason, double silent_s,
                       CoordinatorCommands& out) {
  auto lost = nodes_.extract(node);
  if (!lost.empty()) {
    if (!lost.mapped().is_closed) note_flap(now, node);
    drop_look(node, lost.mapped());
    lost.mapped().suspect_until.reset();
    for (const auto& [id, run] : live_)
      if (const int workers = run->slots_used(node); workers > 0 && run->has_touched(node))  // Else nothing is there.
        note_leftover(lost.mapped(), *run, workers);
    lost.mapped().lost_at = now;
    lost_.insert_or_assign(node, lost.mapped());
  }
  if (lost_.size() > kLostMax)
    forget_lost(std::min_element(lost_.begin(), lost_.end(), [](const auto& a, const auto& b) {
                  return a.second.lost_at < b.second.lost_at;
                })->first);
  for (const auto& [id, run] : live_) run->on_node_lost(now, node, reason, silent_s, out);
  note_node_changed();
}

/// Of its name the orders stay: whoever drained it does not expect it back at work.
void Coordinator::forget_lost(NodeId node) {
  lost_.erase(node);
  link_of_.erase(node);
  const auto condition = conditions_.find(node);
  if (condition == conditions_.end() || condition->second.is_drained || condition->second.slots) return;
  conditions_.erase(condition);
  unstable_.erase(node);
}

// ---- links that are lost again and again ----

void Coordinator::note_flap(TimePoint now, const NodeId& node) {
  if (!settings_.node_timeout) return;
  NodeCondition& known = conditions_[node];
  known.flaps.push_back(now);
  while (now - known.flaps.front() > settings_.flap_window) known.flaps.pop_front();
  if (static_cast<int>(known.flaps.size()) <= settings_.flaps_max) return;
  known.flaps.erase(known.flaps.begin(), known.flaps.end() - settings_.flaps_max - 1);
  known.unstable_until = now + settings_.stable_after;
  unstable_.insert(node);
}

/// It has to be well for so long from here on.
void Coordinator::note_back(TimePoint now, const NodeId& node) {
  const auto known = conditions_.find(node);
  if (known != conditions_.end() && known->second.unstable_until)
    known->second.unstable_until = now + settings_.stable_after;
}

void Coordinator::end_quarantines(TimePoint now) {
  for (auto id = unstable_.begin(); id != unstable_.end();) {
    NodeCondition& known = conditions_.at(*id);
    const auto node = nodes_.find(*id);
    if (now < *known.unstable_until || node == nodes_.end() || node->second.is_closed) {
      ++id;
      continue;
    }
    known.unstable_until.reset();
    id = unstable_.erase(id);
    note_node_changed();
  }
}

// ---- orders of operators ----

std::string Coordinator::why_not(const NodeId& node, const NodeOrder& order) const {
  const auto known = nodes_.find(node);
  const bool is_known = known != nodes_.end();
  const bool is_remembered = lost_.contains(node) || conditions_.contains(node);
  if (!is_known && !is_remembered) return "no node " + node;
  if (order.kind == NodeOrder::Kind::kSetSlots && order.slots > kNodeUnitsMax)
    return fmt::format("{} slots; a node may have {}", order.slots, kNodeUnitsMax);
  if (order.kind != NodeOrder::Kind::kRemove && !conditions_.contains(node) && conditions_.size() >= kConditionsMax)
    return fmt::format("{} names of nodes have orders or lost links already: `nodes remove` those that are gone",
                       conditions_.size());
  if (order.kind != NodeOrder::Kind::kRemove || !is_known) return {};
  const NodeCondition* its = condition(node);
  if (its == nullptr || !its->is_drained) return node + " is connected and not drained: drain it first";
  for (const auto& [id, run] : live_)
    if (run->slots_used(node) > 0) return fmt::format("{} still holds ranks of {}", node, id);
  return {};
}

void Coordinator::on_order(TimePoint now, const NodeId& node, const NodeOrder& order, CoordinatorCommands& out) {
  if (!why_not(node, order).empty()) return;
  note_node_changed();
  room_changed_ = true;
  changed_nodes_.insert(node);
  switch (order.kind) {
    case NodeOrder::Kind::kDrain:
      conditions_[node].is_drained = true;
      return;
    case NodeOrder::Kind::kUndrain:
      conditions_[node].is_drained = false;
      conditions_[node].flaps.clear();  // Whoever takes it back vouches for its link too.
      conditions_[node].unstable_until.reset();
      unstable_.erase(node);
      return;
    case NodeOrder::Kind::kSetSlots:
      conditions_[node].slots = order.slots < 0 ? std::nullopt : std::optional(order.slots);
      return;
    case NodeOrder::Kind::kRemove:
      break;
  }
  // A run may wait for it: for its word that nothing is left, or for its return.
  lose(now, node, "removed by an operator", 0, out);
  // One that was only silent, or drained, has its link still: it would speak on, and nobody would know it.
  if (const auto lost = lost_.find(node); lost != lost_.end() && !lost->second.is_closed)
    out.push_back(coordinator_command::RefuseAgent{node, lost->second.incarnation, "removed by an operator"});
  lost_.erase(node);
  link_of_.erase(node);
  conditions_.erase(node);
  unstable_.erase(node);
}

// ---- views ----

const Coordinator::NodeCondition* Coordinator::condition(const NodeId& node) const {
  const auto known = conditions_.find(node);
  return known == conditions_.end() ? nullptr : &known->second;
}

int Coordinator::slots_of(const Node& known, const NodeCondition* its) {
  return its != nullptr && its->slots ? *its->slots : known.state.slots;
}

NodePhase Coordinator::phase_of(const Node& known, const NodeCondition* its) {
  if (known.lost_at) return NodePhase::kLost;
  if (known.is_closed) return NodePhase::kClosed;
  if (known.state.is_leaving) return NodePhase::kLeaving;
  if (its != nullptr && its->is_drained) return NodePhase::kDrained;
  if (its != nullptr && its->unstable_until) return NodePhase::kUnstable;
  return NodePhase::kReady;
}

std::string Coordinator::why_out(const Node& known, const NodeCondition* its) const {
  switch (phase_of(known, its)) {
    case NodePhase::kReady:
      return {};
    case NodePhase::kClosed:
      return "link closed";
    case NodePhase::kDrained:
      return "drained";
    case NodePhase::kLeaving:
      return "leaving";
    case NodePhase::kLost:
      return "lost";
    case NodePhase::kUnstable:
      break;
  }
  return fmt::format("unstable: link lost {} times within {}; `nodes undrain` takes it back at once", its->flaps.size(),
                     format_duration(settings_.flap_window));
}

NodeSnapshot Coordinator::snapshot_of(const NodeId& node, const Node& known) const {
  const NodeCondition* its = condition(node);
  NodeSnapshot row;
  row.node = node;
  row.slots = slots_of(known, its);
  for (const auto& [id, left] : known.leftovers) row.used += row.runs[id] = left.workers;
  row.is_closed = known.is_closed;
  row.phase = phase_of(known, its);
  row.reason = why_out(known, its);
  row.is_drained = its != nullptr && its->is_drained;
  row.is_leaving = known.state.is_leaving;
  row.has_ordered_slots = its != nullptr && its->slots;
  row.cpus = known.state.cpus;
  row.counts_cpus = known.state.counts_cpus && !row.has_ordered_slots;
  row.gpus = known.state.gpus;
  row.memory_bytes = known.state.memory_bytes;
  row.labels = known.state.labels;
  row.version = known.state.version;
  row.address = known.state.address;
  row.heard_at = known.heard_at;
  return row;
}

/// What a lost node was to be told of forgotten runs is left out: after a restart it connects anew, and says what it
/// holds.
coordinator_event::NodesKnown Coordinator::known_nodes() const {
  coordinator_event::NodesKnown known;
  for (const auto* nodes : {&nodes_, &lost_})
    for (const auto& [id, node] : *nodes)
      known.nodes.push_back({id, node.state, node.last_fact, node.is_closed, node.lost_at});
  for (const auto& [id, condition] : conditions_)
    known.conditions.push_back({id,
                                condition.is_drained,
                                condition.slots,
                                {condition.flaps.begin(), condition.flaps.end()},
                                condition.unstable_until});
  return known;
}

void Coordinator::on_nodes_known(TimePoint now, const coordinator_event::NodesKnown& known) {
  for (const KnownNode& one : known.nodes) {
    Node& node = (one.lost_at ? lost_ : nodes_)[one.node];
    node.incarnation = one.state.incarnation;
    node.state = one.state;
    node.last_fact = one.last_fact;
    node.heard_at = now;
    if (!one.lost_at) note_look(one.node, node);
    node.is_closed = one.is_closed;
    node.lost_at = one.lost_at;
  }
  for (const KnownCondition& one : known.conditions) {
    conditions_[one.node] = {one.is_drained, one.slots, {one.flaps.begin(), one.flaps.end()}, one.unstable_until};
    if (one.unstable_until) unstable_.insert(one.node);
  }
  note_node_changed();
  room_changed_ = true;
}

std::vector<NodeSnapshot> Coordinator::nodes() const {
  std::map<NodeId, NodeSnapshot> rows;
  for (const auto* nodes : {&nodes_, &lost_})
    for (const auto& [id, node] : *nodes) rows.emplace(id, snapshot_of(id, node));
  for (const auto& [id, run] : live_) {
    for (const auto& [node, held] : run->held()) {
      const auto row = rows.find(node);
      if (row == rows.end()) continue;
      int& shown = row->second.runs[id];
      row->second.used += std::max(held - shown, 0);
      shown = std::max(shown, held);
    }
  }
  std::vector<NodeSnapshot> out;
  out.reserve(rows.size());
  for (auto& [id, row] : rows) out.push_back(std::move(row));
  return out;
}

}  // namespace sgd::core
