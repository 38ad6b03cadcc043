#pragma once
// The coordinator's decisions: knows nodes and runs, drops facts that were seen before, declares
// silent nodes lost, and routes the rest. What happens to one run is in run_machine.hpp.

#include <map>
#include <optional>
#include <vector>

#include "common/base/time.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/core/run_machine.hpp"

namespace sgd::core {

/// A node as `sgd-launch nodes` shows it.
struct NodeSnapshot {
  NodeId node;
  int slots = 0;
  int used = 0;
  bool is_closed = false;
};

struct CoordinatorSettings {
  /// A node that says nothing for so long is lost. Nothing: nodes live in this process.
  std::optional<Duration> node_timeout;
};

class Coordinator {
 public:
  /// A tick so much later than it was due says that this process stood still: then nobody else is judged by the clock.
  static constexpr Duration kLateTick = std::chrono::milliseconds(500);
  /// A silent node is looked at once more after this, when what lay unread in its link has been read.
  static constexpr Duration kSecondLook = std::chrono::milliseconds(100);

  explicit Coordinator(CoordinatorSettings settings = {}) : settings_(settings) {}

  void on(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out);
  /// An event that was stored, at the time it was stored with. The records among the commands are those that were given
  /// then, in the same order; everything sent is told again when nodes connect. Ends with coordinator_event::Restarted.
  void replay(TimePoint at, const CoordinatorEvent& event, CoordinatorCommands& out) { apply(at, event, out); }
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;
  /// Nothing for a run that is not known.
  [[nodiscard]] std::optional<RunSnapshot> snapshot(TimePoint now, const RunId& run) const;
  [[nodiscard]] std::vector<NodeSnapshot> nodes() const;

 private:
  struct Node {
    Incarnation incarnation = 0;
    std::string address;
    int slots = 0;
    std::int64_t last_fact = 0;  ///< Highest sequence of this incarnation that was taken.
    TimePoint heard_at;
    bool is_closed = false;      ///< Its link.
    std::optional<TimePoint> suspect_until;
  };

  void apply(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out);
  [[nodiscard]] bool is_stored(const CoordinatorEvent& event) const;
  void on_restarted(TimePoint now, CoordinatorCommands& out);
  void handle(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out);
  void on_agent(TimePoint now, const NodeId& node, const cluster::FromAgent& message, CoordinatorCommands& out);
  void on_state(TimePoint now, const NodeId& node, const cluster::NodeState& state, CoordinatorCommands& out);
  void on_fact(TimePoint now, const NodeId& node, Node& known, const cluster::Fact& fact, CoordinatorCommands& out);
  [[nodiscard]] std::vector<NodeId> silent_nodes(TimePoint now);
  [[nodiscard]] Node* find_speaker(TimePoint now, const NodeId& node, CoordinatorCommands& out);
  [[nodiscard]] TimePoint next_look(const Node& node) const;
  void lose(TimePoint now, const NodeId& node, const std::string& reason, double silent_s, CoordinatorCommands& out);
  void take_back_slots(TimePoint now, CoordinatorCommands& out);
  void offer_capacity(TimePoint now, CoordinatorCommands& out);
  [[nodiscard]] std::map<NodeId, NodeView> views() const;
  [[nodiscard]] int used(const NodeId& node) const;

  CoordinatorSettings settings_;
  std::map<NodeId, Node> nodes_;
  std::map<NodeId, Node> lost_;    ///< As they were: a node may be heard again, and its facts go on counting.
  std::map<RunId, RunMachine> runs_;
  bool capacity_changed_ = false;  ///< In the event in work.
};

}  // namespace sgd::core
