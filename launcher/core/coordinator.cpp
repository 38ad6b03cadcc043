#include "launcher/core/coordinator.hpp"

#include <algorithm>

#include "common/base/assert.hpp"

namespace sgd::core {

void Coordinator::on(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out) {
  using namespace coordinator_event;
  if (const auto* submitted = std::get_if<Submitted>(&event)) {
    const bool is_new = runs_.try_emplace(submitted->run.id, submitted->run, now).second;
    SGD_ASSERT(is_new);
    offer_capacity(now, out);
  } else if (const auto* from_agent = std::get_if<FromAgent>(&event)) {
    on_agent(now, from_agent->node, from_agent->message, out);
  } else if (const auto* port = std::get_if<PortReserved>(&event)) {
    const auto run = runs_.find(port->run);
    if (run != runs_.end()) run->second.on_port(now, port->port, out);
  } else if (const auto* stop = std::get_if<StopRequested>(&event)) {
    const auto run = runs_.find(stop->run);
    if (run != runs_.end()) run->second.on_stop(now, stop->request, out);
  } else {
    for (auto& [id, run] : runs_) run.on_tick(now, out);
  }
}

void Coordinator::on_agent(TimePoint now, const NodeId& node, const cluster::FromAgent& message,
                           CoordinatorCommands& out) {
  if (const auto* state = std::get_if<cluster::NodeState>(&message)) {
    Node& known = nodes_[node];
    if (known.incarnation != state->incarnation) known = Node{state->incarnation, {}, 0, 0};
    known.address = state->address;
    known.slots = state->slots;
    return offer_capacity(now, out);
  }
  const auto known = nodes_.find(node);
  if (known == nodes_.end()) return;  // Its first message must be its state.
  if (const auto* fact = std::get_if<cluster::Fact>(&message)) {
    if (fact->incarnation != known->second.incarnation) return;
    const bool is_new = fact->sequence > known->second.last_fact;
    if (is_new) {
      known->second.last_fact = fact->sequence;
      const auto run = runs_.find(fact->run);
      if (run != runs_.end()) run->second.on_fact(now, node, *fact, out);
    }
    out.push_back(coordinator_command::SendToAgent{node, cluster::FactAck{fact->incarnation, fact->sequence}});
    if (is_new && std::holds_alternative<cluster::Cleared>(fact->body)) offer_capacity(now, out);
  } else if (const auto* put = std::get_if<cluster::ExchangePut>(&message)) {
    const auto run = runs_.find(put->run);
    if (run != runs_.end()) run->second.on_exchange(now, node, *put, out);
  } else if (const auto* progress = std::get_if<cluster::Progress>(&message)) {
    const auto run = runs_.find(progress->run);
    if (run != runs_.end()) run->second.on_progress(now, *progress);
  }
}

/// Runs are offered what is free in the order of their ids.
void Coordinator::offer_capacity(TimePoint now, CoordinatorCommands& out) {
  for (auto& [id, run] : runs_) run.on_capacity(now, views(), out);
}

std::map<NodeId, NodeView> Coordinator::views() const {
  std::map<NodeId, NodeView> views;
  for (const auto& [id, node] : nodes_) {
    int used = 0;
    for (const auto& [run_id, run] : runs_) used += run.slots_used(id);
    views[id] = NodeView{node.address, std::max(0, node.slots - used)};
  }
  return views;
}

std::optional<TimePoint> Coordinator::next_wakeup() const {
  std::optional<TimePoint> next;
  for (const auto& [id, run] : runs_) {
    const std::optional<TimePoint> at = run.next_wakeup();
    if (at) next = next ? std::min(*next, *at) : at;
  }
  return next;
}

std::optional<RunSnapshot> Coordinator::snapshot(TimePoint now, const RunId& run) const {
  const auto place = runs_.find(run);
  if (place == runs_.end()) return std::nullopt;
  return place->second.snapshot(now);
}

}  // namespace sgd::core
