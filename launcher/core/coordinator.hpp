#pragma once
// The coordinator's decisions: knows nodes and runs, drops facts that were seen before, declares
// silent nodes lost, serves the queue, and routes the rest. What happens to one run is in run_machine.hpp.
//
//   node:  unknown --its state--> known --link closed--> closed --its state--> known
//             ^                     |  ^                    |
//             | removed             |  └── any word ── lost <┴── silent for node_timeout, agent started anew
//             └─────────────────────┴─────────────────────┘
// Orders (drain, slots) and how often its link was lost belong to a node's name and outlive its agents.

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/base/time.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/core/fact_counts.hpp"
#include "launcher/core/queue.hpp"
#include "launcher/core/run_machine.hpp"

namespace sgd::core {

struct CoordinatorSettings {
  /// A node that says nothing for so long is lost. Nothing: nodes live in this process.
  std::optional<Duration> node_timeout;
  /// After so long in front of runs that pass it, what is free is kept for a run (queue.hpp).
  Duration backfill_limit = std::chrono::minutes(10);
  /// A node whose link is lost more often than this within flap_window gets no new ranks until it has been
  /// well for stable_after. Only with node_timeout.
  int flaps_max = 5;
  Duration flap_window = std::chrono::hours(1);
  Duration stable_after = std::chrono::minutes(5);
  /// Finished runs that are remembered; the one that finished first is forgotten first.
  std::size_t finished_max = 1000;
};

class Coordinator {
 public:
  /// A tick so much later than it was due says that this process stood still: then nobody else is judged by
  /// the clock.
  static constexpr Duration kLateTick = std::chrono::milliseconds(500);
  /// A silent node is looked at once more after this, when what lay unread in its link has been read.
  static constexpr Duration kSecondLook = std::chrono::milliseconds(100);
  /// After a restart of this process so many nodes a second can be back at least: each is a TLS handshake. Who is not
  /// back yet is given that time beside its own, or a large cluster would be lost by its coordinator's restart.
  static constexpr std::size_t kBackPerSecond = 500;
  /// Lost nodes that are remembered; the one that was lost first is forgotten first.
  static constexpr std::size_t kLostMax = 1024;

  explicit Coordinator(CoordinatorSettings settings = {}) : settings_(settings) {}
  // A copy's live_ would point into the runs of the original.
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  Coordinator(Coordinator&&) = default;
  Coordinator& operator=(Coordinator&&) = default;

  void on(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out);
  /// An event that was stored, at the time it was stored with. The records among the commands are those that
  /// were given then, in the same order; everything sent is told again when nodes connect. Ends with
  /// coordinator_event::Restarted.
  void replay(TimePoint at, const CoordinatorEvent& event, CoordinatorCommands& out) { apply(at, event, out); }
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;
  /// Nothing for a run that is not known.
  [[nodiscard]] std::optional<RunSnapshot> snapshot(TimePoint now, const RunId& run) const;
  /// All runs that are known, in the order of submission.
  [[nodiscard]] std::vector<RunId> runs() const;
  /// Lost ones, too.
  [[nodiscard]] std::vector<NodeSnapshot> nodes() const;
  /// It is known and not lost: connected, or it may come back.
  [[nodiscard]] bool is_expected(const NodeId& node) const { return nodes_.contains(node); }
  /// What would become of `run`, were it submitted now.
  [[nodiscard]] Explanation explain(TimePoint now, const RunDefinition& run) const;
  /// Whether `run` is known and `node` has had no rank of it.
  [[nodiscard]] bool is_foreign(const RunId& run, const NodeId& node) const;
  /// What became of facts, since this process began.
  [[nodiscard]] const FactCounts& facts() const { return facts_; }
  /// Why an order would change nothing, in words; empty: it is carried out. Ask before it is given.
  [[nodiscard]] std::string why_not(const NodeId& node, const NodeOrder& order) const;
  /// With no live run: replayed in place of all stored events it gives a machine that goes on as this one does.
  [[nodiscard]] coordinator_event::NodesKnown known_nodes() const;

 private:
  struct Node {
    Incarnation incarnation = 0;
    cluster::NodeState state;    ///< As it was told last; its runs are not kept.
    std::int64_t last_fact = 0;  ///< Highest sequence of this incarnation that was taken.
    TimePoint heard_at;
    std::optional<TimePoint> look_at;  ///< Its place in looks_.
    bool is_closed = false;            ///< Its link.
    bool is_linked = true;             ///< Since this process began it has been connected.
    std::optional<TimePoint> suspect_until;
    std::optional<TimePoint> lost_at;
    std::map<RunId, Generation> forgotten;  ///< While lost: runs that it may hold and that nobody knows any more.
  };
  /// What belongs to a name, whichever agent bears it.
  struct Standing {
    bool is_drained = false;
    std::optional<int> slots;     ///< Ordered.
    std::deque<TimePoint> flaps;  ///< Losses of its link, at most flaps_max + 1.
    std::optional<TimePoint> unstable_until;
  };
  /// What the queue remembers of a run.
  struct Ticket {
    std::int64_t submission = 0;
    std::set<RunId> passed_by;
    std::optional<TimePoint> startable_since;
  };

  // coordinator.cpp: events and runs
  void apply(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out);
  [[nodiscard]] bool is_stored(const CoordinatorEvent& event) const;
  [[nodiscard]] static bool is_sign_of_life(const CoordinatorEvent& event);
  void on_restarted(TimePoint now, CoordinatorCommands& out);
  void handle(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out);
  void on_fact(TimePoint now, const NodeId& node, Node& known, const cluster::Fact& fact, CoordinatorCommands& out);
  void note_finished(std::size_t first, CoordinatorCommands& out);
  void forget(const RunId& run, CoordinatorCommands& out);

  // coordinator_nodes.cpp
  void on_agent(TimePoint now, const NodeId& node, const cluster::FromAgent& message, CoordinatorCommands& out);
  void on_state(TimePoint now, const NodeId& node, const cluster::NodeState& state, CoordinatorCommands& out);
  void tell_again(const NodeId& node, const cluster::NodeState& state, CoordinatorCommands& out);
  void on_closed(TimePoint now, const NodeId& node);
  void on_nodes_known(TimePoint now, const coordinator_event::NodesKnown& known);
  void on_order(const NodeId& node, const NodeOrder& order, CoordinatorCommands& out);
  [[nodiscard]] std::optional<coordinator_command::RefuseAgent> refusal(TimePoint now,
                                                                        const CoordinatorEvent& event) const;
  [[nodiscard]] std::vector<NodeId> silent_nodes(TimePoint now);
  [[nodiscard]] Node* find_speaker(TimePoint now, const NodeId& node, CoordinatorCommands& out);
  [[nodiscard]] TimePoint next_look(const Node& node) const;
  void hear(TimePoint now, const NodeId& id, Node& node);
  void note_look(const NodeId& id, Node& node);
  void drop_look(const NodeId& id, Node& node);
  void lose(TimePoint now, const NodeId& node, const std::string& reason, double silent_s, CoordinatorCommands& out);
  void note_flap(TimePoint now, const NodeId& node);
  void note_back(TimePoint now, const NodeId& node);
  void end_quarantines(TimePoint now);
  [[nodiscard]] static NodePhase phase_of(const Node& known, const Standing* its);
  [[nodiscard]] NodeSnapshot snapshot_of(const NodeId& node, const Node& known) const;
  [[nodiscard]] std::string why_out(const Node& known, const Standing* its) const;
  /// Nothing for a node without orders, whose link was never lost.
  [[nodiscard]] const Standing* standing(const NodeId& node) const;
  [[nodiscard]] static int slots_of(const Node& known, const Standing* its);

  // coordinator_queue.cpp: who may have what
  void take_back_slots(TimePoint now, CoordinatorCommands& out);
  void offer_capacity(TimePoint now, CoordinatorCommands& out);
  void note_starts(const QueuePlan& plan);
  [[nodiscard]] QueueState queue_state(TimePoint now) const;
  [[nodiscard]] NodeView view_of(const NodeId& node) const;
  [[nodiscard]] std::map<RunId, Holding> holdings() const;
  [[nodiscard]] Capacities capacities(const std::map<RunId, Holding>& holdings) const;
  [[nodiscard]] std::vector<RunId> least_important_first() const;

  CoordinatorSettings settings_;
  std::map<NodeId, Node> nodes_;
  std::map<NodeId, Node> lost_;  ///< As they were: a node may be heard again, and its facts go on counting.
  /// Of nodes_: when each is looked at next for being silent, so that a heartbeat costs no look at all the others.
  std::set<std::pair<TimePoint, NodeId>> looks_;
  std::map<NodeId, Standing> standings_;
  Duration time_to_be_back_{};  ///< Of nodes that have not connected since the restart; whole seconds.
  std::set<NodeId> unstable_;   ///< Names whose standing has unstable_until.
  std::map<RunId, RunMachine> runs_;
  std::map<RunId, RunMachine*> live_;  ///< Of runs_: those that have not finished; most events look at all of them.
  std::map<RunId, Ticket> tickets_;
  std::int64_t submissions_ = 0;
  FactCounts facts_;
  std::deque<RunId> finished_;  ///< In the order in which they finished.
  // In the event in work:
  bool capacity_changed_ = false;
  bool room_changed_ = false;       ///< What nodes offer, so that more may be held than there is.
  std::set<NodeId> changed_nodes_;  ///< Their NodeView is another.
  // Asked after every event, and another only after some: remembered.
  mutable std::optional<TimePoint> runs_wakeup_;
  mutable bool is_wakeup_known_ = false;
};

}  // namespace sgd::core
