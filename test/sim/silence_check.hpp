#pragma once
// Who is taken for silent has been silent: nothing of it had come to the coordinator's process for as long as a node
// may say nothing, read or not.

#include <map>

#include "launcher/core/coordinator_io.hpp"
#include "test/sim/plan.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class SilenceCheck {
 public:
  explicit SilenceCheck(World& world) : world_(world) {}

  /// It lies in front of the process. The first message of a connection may be refused, and is no word of the node
  /// then.
  void on_arrival(const core::CoordinatorEvent& event) {
    const auto* arrived = std::get_if<core::coordinator_event::FromAgent>(&event);
    if (arrived != nullptr && !std::holds_alternative<cluster::NodeState>(arrived->message))
      heard_at_[arrived->node] = world_.queue.now();
  }
  void on_decided(const core::CoordinatorEvent& event) const {
    const auto* silent = std::get_if<core::coordinator_event::NodeSilent>(&event);
    const auto heard = silent == nullptr ? heard_at_.end() : heard_at_.find(silent->node);
    if (heard == heard_at_.end()) return;
    const Duration since = world_.queue.now() - heard->second;
    if (since < kNodeTimeout)
      violated("{} is taken for lost, and a word of it had come {:.1f} s before", silent->node, to_seconds(since));
  }

 private:
  World& world_;
  std::map<NodeId, TimePoint> heard_at_;
};

}  // namespace sgd::sim
