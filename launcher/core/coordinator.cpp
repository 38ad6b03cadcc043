#include "launcher/core/coordinator.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"

namespace sgd::core {

void Coordinator::on(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out) {
  if (std::holds_alternative<coordinator_event::Tick>(event))
    for (const NodeId& node : silent_nodes(now))
      on(now, coordinator_event::NodeSilent{node, to_seconds(now - nodes_.at(node).heard_at)}, out);
  if (is_stored(event)) out.push_back(coordinator_command::Store{now, event});
  apply(now, event, out);
}

/// All but signs of life, and facts that have been taken or come too early.
bool Coordinator::is_stored(const CoordinatorEvent& event) const {
  const auto* arrived = std::get_if<coordinator_event::FromAgent>(&event);
  if (arrived == nullptr) return true;
  const auto known = nodes_.find(arrived->node);
  if (known == nodes_.end()) return true;
  if (const auto* fact = std::get_if<cluster::Fact>(&arrived->message))
    return fact->incarnation == known->second.incarnation && fact->sequence == known->second.last_fact + 1;
  return !std::holds_alternative<cluster::Progress>(arrived->message) &&
         !std::holds_alternative<cluster::Beat>(arrived->message);
}

void Coordinator::apply(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out) {
  handle(now, event, out);
  if (capacity_changed_) take_back_slots(now, out);
  const auto wants_capacity = [](const auto& run) { return run.second.wants_capacity(); };
  while (std::exchange(capacity_changed_, false) || std::any_of(runs_.begin(), runs_.end(), wants_capacity))
    offer_capacity(now, out);
}

void Coordinator::handle(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out) {
  using namespace coordinator_event;
  if (const auto* submitted = std::get_if<Submitted>(&event)) {
    const bool is_new = runs_.try_emplace(submitted->run.id, submitted->run, now).second;
    SGD_ASSERT(is_new);
    capacity_changed_ = true;
  } else if (const auto* from_agent = std::get_if<FromAgent>(&event)) {
    on_agent(now, from_agent->node, from_agent->message, out);
  } else if (const auto* closed = std::get_if<AgentClosed>(&event)) {
    const auto node = nodes_.find(closed->node);
    if (node == nodes_.end()) return;
    node->second.is_closed = true;
    capacity_changed_ = true;
  } else if (const auto* port = std::get_if<PortReserved>(&event)) {
    const auto run = runs_.find(port->run);
    if (run != runs_.end()) run->second.on_port(now, port->generation, port->port, out);
  } else if (const auto* stop = std::get_if<StopRequested>(&event)) {
    const auto run = runs_.find(stop->run);
    if (run != runs_.end()) run->second.on_stop(now, stop->request, out);
  } else if (const auto* silent = std::get_if<NodeSilent>(&event)) {
    lose(now, silent->node, fmt::format("silent for {}", format_duration(settings_.node_timeout.value_or(Duration{0}))),
         silent->silent_s, out);
  } else if (std::holds_alternative<Restarted>(event)) {
    on_restarted(now, out);
  } else {
    for (auto& [id, run] : runs_) run.on_tick(now, out);
  }
}

/// Nobody was listened to for a while: silence counts from here.
void Coordinator::on_restarted(TimePoint now, CoordinatorCommands& out) {
  for (auto& [id, node] : nodes_) {
    node.heard_at = now;
    node.suspect_until.reset();
  }
  for (auto& [id, run] : runs_) run.on_restarted(out);
}

void Coordinator::on_agent(TimePoint now, const NodeId& node, const cluster::FromAgent& message,
                           CoordinatorCommands& out) {
  if (const auto* state = std::get_if<cluster::NodeState>(&message)) return on_state(now, node, *state, out);
  Node* known = find_speaker(now, node, out);
  if (known == nullptr) return;  // Its first message must be its state.
  known->heard_at = now;
  known->suspect_until.reset();
  if (const auto* fact = std::get_if<cluster::Fact>(&message)) {
    on_fact(now, node, *known, *fact, out);
  } else if (const auto* put = std::get_if<cluster::ExchangePut>(&message)) {
    const auto run = runs_.find(put->run);
    if (run != runs_.end()) run->second.on_exchange(now, node, *put, out);
  } else if (const auto* progress = std::get_if<cluster::Progress>(&message)) {
    const auto run = runs_.find(progress->run);
    if (run != runs_.end()) run->second.on_progress(now, *progress);
  }
}

/// A node that was lost and goes on talking over the same link was cut off without noticing: it is told what is wanted.
Coordinator::Node* Coordinator::find_speaker(TimePoint now, const NodeId& node, CoordinatorCommands& out) {
  const auto known = nodes_.find(node);
  if (known != nodes_.end()) return &known->second;
  auto lost = lost_.extract(node);
  if (lost.empty()) return nullptr;
  Node& back = nodes_.insert(std::move(lost)).position->second;
  back.heard_at = now;
  back.is_closed = false;
  capacity_changed_ = true;
  for (auto& [id, run] : runs_) run.on_node_back(node, 0, out);
  return &back;
}

/// A node is new, is back, or has other slots. What it holds is compared with what is wanted of it.
void Coordinator::on_state(TimePoint now, const NodeId& node, const cluster::NodeState& state,
                           CoordinatorCommands& out) {
  const auto place = nodes_.find(node);
  const bool is_restarted = place != nodes_.end() && place->second.incarnation != state.incarnation;
  if (is_restarted) lose(now, node, "its agent was started anew", 0, out);
  Node& known = nodes_[node];
  const bool is_back = known.is_closed || state.is_new_link || known.incarnation != state.incarnation;
  if (known.incarnation != state.incarnation) known = Node{state.incarnation, {}, 0, 0, now, false, {}};
  if (const auto lost = lost_.extract(node); !lost.empty() && lost.mapped().incarnation == state.incarnation)
    known.last_fact = lost.mapped().last_fact;  // Numbers of one incarnation go on.
  known.address = state.address;
  known.slots = state.slots;
  known.heard_at = now;
  known.suspect_until.reset();
  known.is_closed = false;
  capacity_changed_ = true;
  if (!is_back) return;
  for (const cluster::HeldRun& held : state.runs) {
    const auto run = runs_.find(held.run);
    if (run != runs_.end()) {
      run->second.on_node_back(node, held.generation, out);
      continue;
    }
    cluster::DesiredRun gone;
    gone.run = held.run;
    gone.generation = held.generation;
    gone.want = cluster::Want::kGone;
    gone.job = nlohmann::json::object();
    out.push_back(coordinator_command::SendToAgent{node, std::move(gone)});
  }
  for (auto& [id, run] : runs_) {
    const bool is_held = std::any_of(state.runs.begin(), state.runs.end(), [&](const auto& held) { return held.run == id; });
    if (!is_held && run.slots_used(node) > 0) run.on_node_back(node, 0, out);
  }
}

void Coordinator::on_fact(TimePoint now, const NodeId& node, Node& known, const cluster::Fact& fact,
                          CoordinatorCommands& out) {
  if (fact.incarnation != known.incarnation) return;
  // A gap means that an earlier one is still on its way: it will be sent again, and this one after it.
  if (fact.sequence > known.last_fact + 1) return;
  const bool is_new = fact.sequence > known.last_fact;
  if (is_new) {
    known.last_fact = fact.sequence;
    const auto run = runs_.find(fact.run);
    if (run != runs_.end()) run->second.on_fact(now, node, fact, out);
    if (std::holds_alternative<cluster::Cleared>(fact.body)) capacity_changed_ = true;
  }
  out.push_back(coordinator_command::SendToAgent{node, cluster::FactAck{fact.incarnation, known.last_fact}});
}

/// As the watchdog looks for ranks: nobody is judged by a late clock, nor before a second look.
std::vector<NodeId> Coordinator::silent_nodes(TimePoint now) {
  std::vector<NodeId> silent;
  if (!settings_.node_timeout) return silent;
  const bool is_late = std::any_of(nodes_.begin(), nodes_.end(),
                                   [&](const auto& node) { return now >= next_look(node.second) + kLateTick; });
  for (auto& [id, node] : nodes_) {
    if (now < next_look(node)) continue;
    if (is_late) {
      node.heard_at = now;
      node.suspect_until.reset();
    } else if (!node.suspect_until) {
      node.suspect_until = now + kSecondLook;
    } else {
      silent.push_back(id);
    }
  }
  return silent;
}

TimePoint Coordinator::next_look(const Node& node) const {
  return node.suspect_until.value_or(node.heard_at + *settings_.node_timeout);
}

void Coordinator::lose(TimePoint now, const NodeId& node, const std::string& reason, double silent_s,
                       CoordinatorCommands& out) {
  auto lost = nodes_.extract(node);
  if (!lost.empty()) {
    lost.mapped().suspect_until.reset();
    lost_.insert_or_assign(node, lost.mapped());
  }
  for (auto& [id, run] : runs_) run.on_node_lost(now, node, reason, silent_s, out);
  capacity_changed_ = true;
}

/// Fewer slots than are held: the runs with the greatest ids give theirs up first.
void Coordinator::take_back_slots(TimePoint now, CoordinatorCommands& out) {
  for (const auto& [id, node] : nodes_) {
    int over = used(id) - node.slots;
    for (auto run = runs_.rbegin(); run != runs_.rend() && over > 0; ++run) {
      const int held = run->second.slots_used(id);
      if (held == 0) continue;
      run->second.on_slots_lost(now, id, out);
      over -= held;
    }
  }
}

/// Runs are offered what is free in the order of their ids.
void Coordinator::offer_capacity(TimePoint now, CoordinatorCommands& out) {
  for (auto& [id, run] : runs_) run.on_capacity(now, views(), out);
}

std::map<NodeId, NodeView> Coordinator::views() const {
  std::map<NodeId, NodeView> views;
  for (const auto& [id, node] : nodes_)
    views[id] = NodeView{node.address, std::max(0, node.slots - used(id)), node.is_closed};
  return views;
}

int Coordinator::used(const NodeId& node) const {
  int used = 0;
  for (const auto& [id, run] : runs_) used += run.slots_used(node);
  return used;
}

std::optional<TimePoint> Coordinator::next_wakeup() const {
  std::optional<TimePoint> next;
  const auto consider = [&next](TimePoint at) { next = next ? std::min(*next, at) : at; };
  for (const auto& [id, run] : runs_)
    if (const std::optional<TimePoint> at = run.next_wakeup()) consider(*at);
  if (settings_.node_timeout)
    for (const auto& [id, node] : nodes_) consider(next_look(node));
  return next;
}

std::optional<RunSnapshot> Coordinator::snapshot(TimePoint now, const RunId& run) const {
  const auto place = runs_.find(run);
  if (place == runs_.end()) return std::nullopt;
  return place->second.snapshot(now);
}

std::vector<NodeSnapshot> Coordinator::nodes() const {
  std::vector<NodeSnapshot> rows;
  for (const auto& [id, node] : nodes_) rows.push_back({id, node.slots, used(id), node.is_closed});
  return rows;
}

}  // namespace sgd::core
