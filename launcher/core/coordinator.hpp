#pragma once
// The coordinator's decisions: knows nodes and runs, drops facts that were seen before, and
// routes the rest. What happens to one run is in run_machine.hpp.

#include <map>
#include <optional>

#include "common/base/time.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/core/run_machine.hpp"

namespace sgd::core {

class Coordinator {
 public:
  void on(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out);
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;
  /// Nothing for a run that is not known.
  [[nodiscard]] std::optional<RunSnapshot> snapshot(TimePoint now, const RunId& run) const;

 private:
  struct Node {
    Incarnation incarnation = 0;
    std::string address;
    int slots = 0;
    std::int64_t last_fact = 0;  ///< Highest sequence of this incarnation that was taken.
  };

  void on_agent(TimePoint now, const NodeId& node, const cluster::FromAgent& message, CoordinatorCommands& out);
  void offer_capacity(TimePoint now, CoordinatorCommands& out);
  [[nodiscard]] std::map<NodeId, NodeView> views() const;

  std::map<NodeId, Node> nodes_;
  std::map<RunId, RunMachine> runs_;
};

}  // namespace sgd::core
