// What there is, counted: who asks for it again and again would hold up everybody by rows of ten thousand nodes.

#include <algorithm>

#include "launcher/core/coordinator.hpp"

namespace sgd::core {

std::map<NodePhase, NodeSum> Coordinator::node_sums() const {
  std::map<NodePhase, NodeSum> sums;
  for (const auto* nodes : {&nodes_, &lost_})
    for (const auto& [id, node] : *nodes) {
      const NodeCondition* its = condition(id);
      NodeSum& sum = sums[phase_of(node, its)];
      ++sum.nodes;
      sum.slots += slots_of(node, its);
      for (const auto& [run, left] : node.leftovers) sum.used += left.workers;
    }
  for (const auto& [id, run] : live_)
    for (const auto& [name, held] : run->held()) {
      auto node = nodes_.find(name);
      if (node == nodes_.end()) node = lost_.find(name);
      if (node == lost_.end()) continue;
      const auto left = node->second.leftovers.find(id);
      const int counted = left == node->second.leftovers.end() ? 0 : left->second.workers;
      sums.at(phase_of(node->second, condition(name))).used += std::max(held - counted, 0);
    }
  return sums;
}

}  // namespace sgd::core
