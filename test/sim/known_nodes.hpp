#pragma once
// What the coordinator was told of each node, by its agent and by operators, as far as it was stored: what it
// may place there is judged by this.

#include <map>
#include <string>

#include "launcher/core/coordinator_io.hpp"

namespace sgd::sim {

struct KnownNode {
  int offered = 0;  ///< Slots, by its agent.
  int cpus = 0;
  bool offers_cpus = false;
  bool is_leaving = false;
  bool is_drained = false;
  std::optional<int> ordered;  ///< Slots, by an operator.

  [[nodiscard]] int slots() const { return ordered.value_or(offered); }
  [[nodiscard]] bool counts_cpus() const { return offers_cpus && !ordered; }
};

class KnownNodes {
 public:
  void note(const core::CoordinatorEvent& event) {
    if (const auto* ordered = std::get_if<core::coordinator_event::NodeOrdered>(&event))
      return note(ordered->node, ordered->order);
    if (const auto* known = std::get_if<core::coordinator_event::NodesKnown>(&event)) return note(*known);
    const auto* arrived = std::get_if<core::coordinator_event::FromAgent>(&event);
    const auto* state = arrived == nullptr ? nullptr : std::get_if<cluster::NodeState>(&arrived->message);
    if (state != nullptr) note(arrived->node, *state);
  }
  void clear() { nodes_.clear(); }
  [[nodiscard]] KnownNode at(const NodeId& node) const {
    const auto known = nodes_.find(node);
    return known == nodes_.end() ? KnownNode{} : known->second;
  }

 private:
  void note(const NodeId& node, const cluster::NodeState& state) {
    KnownNode& known = nodes_[node];
    known.offered = state.slots;
    known.cpus = state.cpus;
    known.offers_cpus = state.counts_cpus;
    known.is_leaving = state.is_leaving;
  }
  void note(const core::coordinator_event::NodesKnown& all) {
    for (const core::KnownNode& one : all.nodes) note(one.node, one.state);
    for (const core::KnownCondition& one : all.conditions) {
      nodes_[one.node].is_drained = one.is_drained;
      nodes_[one.node].ordered = one.slots;
    }
  }
  void note(const NodeId& node, const core::NodeOrder& order) {
    using Kind = core::NodeOrder::Kind;
    KnownNode& known = nodes_[node];
    if (order.kind == Kind::kDrain || order.kind == Kind::kUndrain) known.is_drained = order.kind == Kind::kDrain;
    if (order.kind == Kind::kSetSlots) known.ordered = order.slots < 0 ? std::nullopt : std::optional(order.slots);
    if (order.kind != Kind::kRemove) return;
    known.is_drained = false;
    known.ordered.reset();
  }

  std::map<NodeId, KnownNode> nodes_;
};

}  // namespace sgd::sim
