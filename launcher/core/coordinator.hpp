#pragma once
// The coordinator's decisions: knows nodes and runs, drops facts that were seen before, declares
// silent nodes lost, serves the queue, and routes the rest. What happens to one run is in run_machine.hpp.
//
//   node:  unknown --its state--> known --link closed--> closed --its state--> known
//             ^                     |  ^                    |
//             | removed             |  └── any word ── lost <┴── silent for node_timeout, agent started anew
//             └─────────────────────┴─────────────────────┘
// Orders (drain, slots) and how often its link was lost belong to a node's name and outlive its agents.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "launcher/core/coordinator_state.hpp"
#include "launcher/core/queue.hpp"
#include "launcher/core/quota.hpp"

namespace sgd::core {

class Coordinator : private CoordinatorState, private CoordinatorIndex {
 public:
  using State = CoordinatorState;

  /// A tick so much later than it was due says that this process stood still: then nobody else is judged by
  /// the clock.
  static constexpr Duration kLateTick = RunMachine::kLateTick;
  /// A silent node is looked at once more after this, when what lay unread in its link has been read.
  static constexpr Duration kSecondLook = std::chrono::milliseconds(100);
  /// After a restart of this process so many nodes a second can be back at least: each is a TLS handshake. Who is not
  /// back yet is given that time beside its own, or a large cluster would be lost by its coordinator's restart.
  static constexpr std::size_t kBackPerSecond = 500;
  /// It is given more for as long as others go on coming back, since a machine may be slower: as if so few came a
  /// second.
  static constexpr std::size_t kSlowlyBackPerSecond = 50;
  /// Lost nodes that are remembered; the one that was lost first is forgotten first.
  static constexpr std::size_t kLostMax = 1024;
  /// Names that orders are remembered of, known nodes or not.
  static constexpr std::size_t kConditionsMax = 65'536;

  explicit Coordinator(CoordinatorSettings settings = {}) { settings_ = settings; }
  /// Goes on as the machine that `state` was taken of.
  Coordinator(CoordinatorSettings settings, State state);
  // A copy's live_ would point into the runs of the original.
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;
  Coordinator(Coordinator&&) = default;
  Coordinator& operator=(Coordinator&&) = default;

  /// After a machine was made of a state, before any event: what its shell has to do again.
  void tell_open(CoordinatorCommands& out) const {
    for (const auto& [id, run] : runs_) run.tell_open(out);
    for (const auto& [id, experiment] : experiments_) experiment.tell_open(out);
  }
  /// Between two events it is all there is.
  [[nodiscard]] const State& state() const { return *this; }
  [[nodiscard]] const CoordinatorSettings& settings() const { return settings_; }
  void on(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out);
  /// An event that was stored, at the time it was stored with. The records among the commands are those that
  /// were given then, in the same order; everything sent is told again when nodes connect. Ends with
  /// coordinator_event::Restarted.
  void replay(TimePoint at, const CoordinatorEvent& event, CoordinatorCommands& out) { apply(at, event, out); }
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;
  /// Nothing for a run that is not known.
  [[nodiscard]] std::optional<RunSnapshot> snapshot(TimePoint now, const RunId& run, Ranks ranks = Ranks::kShown) const;
  /// All runs and experiments that are known, in the order of submission.
  [[nodiscard]] std::vector<RunId> runs() const;
  /// Lost ones, too.
  [[nodiscard]] std::vector<NodeSnapshot> nodes() const;
  /// What the rows of nodes() add up to, at a small part of their price.
  [[nodiscard]] std::map<NodePhase, NodeSum> node_sums() const;
  /// It is known and not lost: connected, or it may come back.
  [[nodiscard]] bool is_expected(const NodeId& node) const { return nodes_.contains(node); }
  /// Orders for a node say over which of its links they go. 0: over none.
  [[nodiscard]] LinkNumber link_of(const NodeId& node) const;
  [[nodiscard]] OwnerLoad load_of(const std::string& owner) const;
  /// How the ranks of a command are told of a signal that its launcher has got. Error: they are not, and why.
  [[nodiscard]] Result<std::vector<coordinator_command::SendToAgent>> signal_orders(const RunId& run, int signal) const;
  /// What would become of `run`, were it submitted now.
  [[nodiscard]] Explanation explain(TimePoint now, const RunDefinition& run) const;
  /// Whether `run` is known and `node` has had a rank of it.
  [[nodiscard]] bool has_had_rank(const RunId& run, const NodeId& node) const;
  /// What became of facts, since this process began.
  [[nodiscard]] const FactCounts& facts() const { return facts_; }
  /// Why an order would change nothing, in words; empty: it is carried out. Ask before it is given.
  [[nodiscard]] std::string why_not(const NodeId& node, const NodeOrder& order) const;
  /// With no live run: replayed in place of all stored events it gives a machine that goes on as this one does.
  [[nodiscard]] coordinator_event::NodesKnown known_nodes() const;

 private:
  // coordinator.cpp: events and runs
  void apply(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out);
  [[nodiscard]] bool is_stored(const CoordinatorEvent& event) const;
  [[nodiscard]] bool is_news(const coordinator_event::CheckpointStored& stored) const;
  [[nodiscard]] static bool is_sign_of_life(const CoordinatorEvent& event);
  void on_restarted(TimePoint now, CoordinatorCommands& out);
  void handle(TimePoint now, const CoordinatorEvent& event, CoordinatorCommands& out);
  void on_fact(TimePoint now, const NodeId& node, Node& known, const cluster::Fact& fact, CoordinatorCommands& out);
  void note_finished(std::size_t first, CoordinatorCommands& out);
  void note_touched(const CoordinatorEvent& event);
  void note_all_touched();
  void note_touched(const RunId& id);
  void forget(const RunId& run, CoordinatorCommands& out);

  // coordinator_experiments.cpp: runs that own runs
  void begin_run(TimePoint now, const RunDefinition& run);
  void begin_experiment(TimePoint now, const RunDefinition& run, CoordinatorCommands& out);
  void begin_trial(TimePoint now, RunDefinition run, CoordinatorCommands& out);
  void hold_copy(TimePoint now, RunMachine& run, CoordinatorCommands& out);
  void settle_copies(TimePoint now, Experiment& experiment, CoordinatorCommands& out);
  [[nodiscard]] bool is_due(TimePoint now, const Experiment& experiment, tune::TrialId trial,
                            const HeldCopy& copy) const;
  [[nodiscard]] std::string state_to_copy(const Experiment& experiment, const HeldCopy& copy) const;
  void take_checkpoint(TimePoint now, Experiment& experiment, tune::TrialId trial, CoordinatorCommands& out);
  void go_on_after_end(TimePoint now, Experiment& experiment, const RunId& run, CoordinatorCommands& out);
  void on_checkpoint_stored(TimePoint now, const coordinator_event::CheckpointStored& stored, CoordinatorCommands& out);
  void end_waiting(TimePoint now, const RunMachine& run, const StopRequest& request, CoordinatorCommands& out);
  void resume_trial(TimePoint now, RunMachine& run, CoordinatorCommands& out);
  void on_experiment_resumed(TimePoint now, const coordinator_event::ExperimentResumed& resumed,
                             CoordinatorCommands& out);
  void on_search(TimePoint now, const RunId& run, const std::string& words, bool is_line, CoordinatorCommands& out);
  [[nodiscard]] bool is_needed(const RunId& run) const;
  void forget_trials(const RunId& experiment, CoordinatorCommands& out);
  void tell_parent(TimePoint now, std::size_t index, CoordinatorCommands& out);
  void advance(TimePoint now, Experiment& experiment, CoordinatorCommands& out);
  [[nodiscard]] std::int64_t room_for_trials(const job::JobSpec& job);
  void advance_all(TimePoint now, CoordinatorCommands& out);
  void carry_out(TimePoint now, const TrialOrders& orders, CoordinatorCommands& out);

  // coordinator_nodes.cpp
  void note_node_changed();
  void on_agent(TimePoint now, const NodeId& node, const cluster::FromAgent& message, CoordinatorCommands& out);
  void on_state(TimePoint now, const NodeId& node, const cluster::NodeState& state, CoordinatorCommands& out);
  static Leftover leftover(const RunMachine& run, int workers);
  static void note_leftover(Node& lost, const RunMachine& run, int workers);
  static bool is_end_of(const Leftover& left, const cluster::Fact& fact, FactVerdict verdict);
  void note_leftovers(const NodeId& node, Node& known, const cluster::NodeState& state);
  void tell_again(TimePoint now, const NodeId& node, const cluster::NodeState& state, CoordinatorCommands& out);
  void on_closed(TimePoint now, const NodeId& node);
  void on_nodes_known(TimePoint now, const coordinator_event::NodesKnown& known);
  void on_order(TimePoint now, const NodeId& node, const NodeOrder& order, CoordinatorCommands& out);
  [[nodiscard]] std::optional<coordinator_command::RefuseAgent> refusal(TimePoint now,
                                                                        const CoordinatorEvent& event) const;
  [[nodiscard]] std::vector<NodeId> silent_nodes(TimePoint now);
  [[nodiscard]] TimePoint time_to_come_back() const;
  [[nodiscard]] Node* find_sender(TimePoint now, const NodeId& node, CoordinatorCommands& out);
  [[nodiscard]] TimePoint next_look(const Node& node) const;
  void note_heard(TimePoint now, const NodeId& id, Node& node);
  void note_look(const NodeId& id, Node& node);
  void drop_look(const NodeId& id, Node& node);
  void lose(TimePoint now, const NodeId& node, const std::string& reason, double silent_s, CoordinatorCommands& out);
  void forget_lost(NodeId node);
  void note_flap(TimePoint now, const NodeId& node);
  void note_back(TimePoint now, const NodeId& node);
  void end_quarantines(TimePoint now);
  [[nodiscard]] static NodePhase phase_of(const Node& known, const NodeCondition* its);
  [[nodiscard]] NodeSnapshot snapshot_of(const NodeId& node, const Node& known) const;
  [[nodiscard]] std::string why_out(const Node& known, const NodeCondition* its) const;
  /// Nothing for a node without orders, whose link was never lost.
  [[nodiscard]] const NodeCondition* condition(const NodeId& node) const;
  [[nodiscard]] static int slots_of(const Node& known, const NodeCondition* its);

  // coordinator_queue.cpp: who may have what
  void take_back_slots(TimePoint now, CoordinatorCommands& out);
  [[nodiscard]] std::map<RunId, int> settle(TimePoint now, std::size_t& told, CoordinatorCommands& out);
  [[nodiscard]] Duration offer_gap() const;
  void tell_views(TimePoint now, CoordinatorCommands& out);
  [[nodiscard]] std::map<RunId, int> offer_capacity(TimePoint now, CoordinatorCommands& out);
  bool offer_growth(TimePoint now, const std::map<RunId, int>& growth, CoordinatorCommands& out);
  void note_starts(const QueuePlan& plan);
  [[nodiscard]] Demand demand_of(const RunMachine& run) const;
  [[nodiscard]] bool tells_of_left_out(const NodeId& node, const cluster::FactBody& body) const;
  [[nodiscard]] QueueState queue_state(TimePoint now, const NodeOffers& offers) const;
  [[nodiscard]] NodeView view_of(const NodeId& node) const;
  [[nodiscard]] std::map<RunId, Holding> holdings() const;
  [[nodiscard]] const NodeOffers& offers();
  [[nodiscard]] NodeOffers make_offers(bool with_labels) const;
  [[nodiscard]] Capacities capacities(const NodeOffers& offers, const std::map<RunId, Holding>& holdings) const;
  [[nodiscard]] bool asks_for_labels() const;
  [[nodiscard]] std::vector<RunMachine*> least_important_first() const;
};
static_assert(sizeof(Coordinator) == sizeof(CoordinatorState) + sizeof(CoordinatorIndex),
              "a field of the machine belongs into CoordinatorState or CoordinatorIndex");

}  // namespace sgd::core
