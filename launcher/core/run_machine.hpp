#pragma once
// The life of one run, as the coordinator decides it.
//
//   placing --slots--> starting --all ranks ready--> running --all ranks exited 0--> clearing --> finished
//      |                  |  ^                          |
//      |                  |  └── slots ── waiting <──┐  ├── leave (slots lost, node drained, more slots) ──> leaving
//      |                  └── failure ──> recovering ┴──┴── failure                                 |
//      |                                     ^   └── no restart ──> clearing (outcome failed)       |
//      |                                     └────────────────────── all ranks left ────────────────┘
//      |                  any of them ── stop request ──> stopping --all exited, or deadline--> clearing
//      └── placement_timeout, stop request ─────────────────────────────────────────────> finished
//
// Every start of the worker group is a generation; a fact of another generation is dropped (reports and
// exits of the past never count twice). While recovering, nodes are told to clear on behalf of the next
// generation, and facts of the ended one still count: what its ranks had said before they died is not lost.
// What to do with the outcome is decided before anything is cleared, so that consequences of clearing
// never become causes.

#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/base/time.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/core/exchange.hpp"
#include "launcher/core/fact_counts.hpp"
#include "launcher/core/failure.hpp"
#include "launcher/core/placement.hpp"
#include "launcher/core/recovery_record.hpp"
#include "launcher/core/report_reducer.hpp"
#include "launcher/core/resources.hpp"
#include "launcher/core/retry_budget.hpp"
#include "launcher/core/snapshot.hpp"

namespace sgd::core {

/// What the coordinator knows of a node and a run needs.
struct NodeView {
  std::string address;
  bool is_closed = false;   ///< Its link is closed; it may come back.
  bool is_drained = false;  ///< Its ranks are to leave it at the next boundary.
};

/// What a run may have now.
struct Offer {
  std::map<NodeId, NodeView> nodes;  ///< Of the placement.
  Placement placement;               ///< Of a run that waits: where it starts now; world_size 0: not now, and why.
  std::string reason;                ///< Of a run that waits: its place in the queue.
  bool fits_idle = false;            ///< Of a run that waits: only other runs are in its way.
  int growth = 0;                    ///< Of a run at work: workers that it may have more.
};

class RunMachine {
 public:
  /// Checkpoints that a restart may try, the newest first.
  static constexpr std::size_t kCheckpointsMax = 8;
  /// After one rank has ended with 0, the others' time to end too.
  static constexpr Duration kEarlyExitGrace = std::chrono::seconds(30);

  RunMachine(RunDefinition definition, TimePoint now);

  /// What it may have now; for one that waits, may grow or wants it: after every event that may have changed slots.
  void on_capacity(TimePoint now, const Offer& offer, CoordinatorCommands& out);
  /// A node has changed; one that the run does not hold is nothing to it.
  void on_view(TimePoint now, const NodeId& node, const NodeView& view, CoordinatorCommands& out);
  /// This run is to give up what it has on `node`, now: its ranks save and end, and no retry is used.
  void on_slots_lost(TimePoint now, const NodeId& node, const std::string& reason, CoordinatorCommands& out);
  void on_node_lost(TimePoint now, const NodeId& node, const std::string& reason, double silent_s,
                    CoordinatorCommands& out);
  /// `node` (re)connected and holds this run at `generation`: told again what is wanted.
  void on_node_back(const NodeId& node, Generation generation, CoordinatorCommands& out);
  void on_port(TimePoint now, Generation generation, int port, CoordinatorCommands& out);
  FactVerdict on_fact(TimePoint now, const NodeId& node, const cluster::Fact& fact, CoordinatorCommands& out);
  void on_exchange(TimePoint now, const NodeId& node, const cluster::ExchangePut& put, CoordinatorCommands& out);
  void on_progress(TimePoint now, const NodeId& node, const cluster::Progress& progress);
  void on_stop(TimePoint now, const StopRequest& request, CoordinatorCommands& out);
  void on_tick(TimePoint now, CoordinatorCommands& out);
  void on_restarted(CoordinatorCommands& out) const;
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;

  [[nodiscard]] bool finished() const { return phase_ == RunPhase::kFinished; }
  /// Starts as soon as its offer has a placement.
  [[nodiscard]] bool waits_for_room() const {
    return phase_ == RunPhase::kPlacing || (phase_ == RunPhase::kWaiting && start_at_capacity_);
  }
  /// It has run in this life, and only waits to go on.
  [[nodiscard]] bool is_admitted() const { return generation_ >= first_generation_; }
  /// At work below its size.
  [[nodiscard]] bool may_grow() const;
  [[nodiscard]] const RunDefinition& definition() const { return definition_; }
  [[nodiscard]] Demand demand() const;
  /// Of its newest generation, alive or not.
  [[nodiscard]] const Placement& placement() const { return placement_.world_size > 0 ? placement_ : before_; }
  [[nodiscard]] Generation desired_generation() const { return desired_generation_; }
  /// `node` was told something of it, ever.
  [[nodiscard]] bool has_touched(const NodeId& node) const { return touched_.contains(node); }
  /// It has to know what is free by now: call on_capacity() at once.
  [[nodiscard]] bool wants_capacity() const { return is_ready_to_count() || looks_for_room_; }
  /// Slots that the run holds on `node`.
  [[nodiscard]] int slots_used(const NodeId& node) const;
  /// Slots that it holds on any.
  [[nodiscard]] WorkersByNode held() const;
  [[nodiscard]] RunSnapshot snapshot(TimePoint now) const;

 private:
  [[nodiscard]] bool is_on(const NodeId& node, Rank rank) const;

  struct NodeRecord {
    int node_rank = 0;
    std::vector<Rank> ranks;
    bool cleared = false;  ///< Nothing of the live generation runs there.
    bool lost = false;     ///< Not heard of any more: nobody waits for it.
  };
  struct RankRecord {
    NodeId node;
    int pid = 0;
    RankPhase phase = RankPhase::kStarting;
    std::int64_t first_step = -1;
    link::Heartbeat heartbeat;
    std::optional<TimePoint> heartbeat_at;
    bool exited = false;
    bool done = false;         ///< Exited with 0, or with 76 when asked to stop or leave.
    bool left = false;         ///< Exited because it was asked to leave.
    bool missed_peer = false;  ///< Exited because a collective failed under it.
  };
  /// Why the ranks are asked to end although nobody wants the run to end.
  enum class Leave { kNo, kAtBoundary, kNow };

  // run_machine.cpp: placing, starting, stopping, the end
  void start_generation(TimePoint now, CoordinatorCommands& out);
  void note_resize(TimePoint now, const Placement& before, CoordinatorCommands& out);
  void send_desired(cluster::Want want, CoordinatorCommands& out);
  void send_desired(const NodeId& node, const NodeRecord& record, cluster::Want want, CoordinatorCommands& out);
  void decide(TimePoint now, CoordinatorCommands& out);
  void begin_clearing(TimePoint now, CoordinatorCommands& out);
  void end_run(TimePoint now, const char* state, int exit_code, std::string error, CoordinatorCommands& out);
  void finish(TimePoint now, CoordinatorCommands& out);

  // run_machine_recovery.cpp: failures, waits, changes of size
  void judge(TimePoint now, CoordinatorCommands& out);
  void begin_recovery(TimePoint now, CoordinatorCommands& out);
  void on_recovery_cleared(TimePoint now);
  [[nodiscard]] bool copies_are_ahead() const;
  void wait_for_slots(TimePoint now, CoordinatorCommands& out);
  void consider_leaving(CoordinatorCommands& out);
  void consider_growth(TimePoint now, CoordinatorCommands& out);
  void leave_at_boundary(std::string reason, CoordinatorCommands& out);
  void complete_recovery(TimePoint now, CoordinatorCommands& out);
  void check_early_exit(TimePoint now);
  void note_peer_loss(TimePoint now, CoordinatorCommands& out);
  [[nodiscard]] bool is_missed(const NodeId& node) const;
  void lose_node(TimePoint now, const NodeId& node, const std::string& reason, double silent_s,
                 CoordinatorCommands& out);
  [[nodiscard]] std::vector<std::string> checkpoints_to_try() const;
  [[nodiscard]] bool is_same_shape() const;

  // run_machine_facts.cpp
  void on_body(TimePoint now, const NodeId& node, const cluster::FactBody& body, CoordinatorCommands& out);
  void on_exited(TimePoint now, const NodeId& node, const cluster::WorkerExited& exited, CoordinatorCommands& out);
  void on_started(TimePoint now, const NodeId& node, const cluster::WorkerStarted& started, CoordinatorCommands& out);
  void on_checkpoint(const link::CheckpointSaved& checkpoint, CoordinatorCommands& out);
  void accept(const link::CheckpointSaved& checkpoint, CoordinatorCommands& out);
  void accept_reported(CoordinatorCommands& out);
  void on_rejected(const link::CheckpointRejected& rejected, CoordinatorCommands& out);
  void note_step(std::int64_t step);
  void on_result(const cluster::ResultMade& result);
  void on_ready(TimePoint now, const cluster::WorkerReady& ready, CoordinatorCommands& out);
  void on_first_step(TimePoint now, const cluster::WorkerFirstStep& step, CoordinatorCommands& out);
  void on_report(TimePoint now, const cluster::Report& report, CoordinatorCommands& out);
  void on_keeper_lost(TimePoint now, const NodeId& node, const cluster::KeeperLost& lost);
  void on_cleared(const NodeId& node);
  void note_straggler(int epoch, const Straggler& found, CoordinatorCommands& out);
  void add_failure(TimePoint now, Failure failure);

  [[nodiscard]] bool decided(TimePoint now) const;
  [[nodiscard]] std::string reason() const;
  void record(nlohmann::ordered_json event, CoordinatorCommands& out) const;
  [[nodiscard]] bool is_live() const;
  [[nodiscard]] bool is_ready_to_count() const {
    return phase_ == RunPhase::kWaiting && start_at_capacity_ && !wait_until_ && !is_queued_;
  }
  [[nodiscard]] int slots_of(const NodeRecord& node) const;
  [[nodiscard]] bool all_exited() const;
  [[nodiscard]] bool all_cleared() const;
  [[nodiscard]] bool all_started() const;
  void end_rank(RankRecord& rank);
  void clear_node(NodeRecord& node);
  void clear_none_but_lost();
  [[nodiscard]] bool is_training() const { return definition_.job.training.has_value(); }
  [[nodiscard]] RankRecord* find(Rank rank);

  RunDefinition definition_;
  TimePoint submitted_at_;
  RunPhase phase_ = RunPhase::kPlacing;
  Generation generation_ = 0;
  Generation desired_generation_ = 0;  ///< What nodes are told: one more while recovering.
  Generation first_generation_ = 1;
  Placement placement_;
  Placement before_;   ///< Of the generation before.
  Placement trained_;  ///< Of the last generation that made a step, else of the first one.
  int master_port_ = 0;
  Offer offered_;                     ///< The newest.
  std::map<NodeId, NodeView> views_;  ///< Of nodes_, as far as they are not lost.
  std::set<NodeId> touched_;          ///< Nodes that may hold something of it.
  std::map<NodeId, std::string> addresses_;
  std::map<NodeId, NodeRecord> nodes_;
  std::map<Rank, RankRecord> ranks_;
  // Counted, since a run of ten thousand ranks asks after each of their facts:
  std::size_t ranks_started_ = 0;
  std::size_t ranks_exited_ = 0;
  std::size_t nodes_cleared_ = 0;
  ExchangeTable exchange_;
  ReportReducer reducer_;
  CauseFinder causes_;

  RetryBudget budget_;
  RecoveryRecord recovery_;
  bool was_started_ = false;  ///< All ranks of this generation have made their first step.
  Leave leave_ = Leave::kNo;
  std::string resize_reason_;      ///< Why the next generation may have another size.
  bool start_at_capacity_ = true;  ///< While waiting: for slots; else only for the time.
  std::optional<TimePoint> wait_until_;
  bool is_queued_ = false;  ///< While waiting for slots: only other runs are in the way, so no attempt is used.
  std::optional<TimePoint> placeless_since_;  ///< While placing: not even idle nodes have room. Set: the time-out runs.
  std::optional<TimePoint> grow_at_;          ///< The cooldown of the last change of size ends.
  bool looks_for_room_ = false;               ///< It could grow from now on; what was free before does not tell.
  std::optional<TimePoint> first_exit_at_;
  std::optional<Rank> straggler_;  ///< That was told of in this generation.
  /// A checkpoint, and the last report of rank 0 before it. It counts when that is a line: a restart from a state
  /// whose reports were lost with a node would leave a gap in the metrics.
  struct HeldCheckpoint {
    link::ReportKey after;
    link::CheckpointSaved checkpoint;
  };
  std::vector<HeldCheckpoint> held_checkpoints_;
  std::map<NodeId, Generation> keepers_from_;  ///< As in cluster::DesiredRun.
  std::vector<std::string> checkpoints_;  ///< Accepted, absolute or relative to the run directory, the newest last.

  std::optional<StopRequest> stop_;
  RunOutcome outcome_;
  std::int64_t steps_told_ = 0;  ///< By facts: heartbeats are not stored, so nothing may depend on them.
  std::optional<TimePoint> last_report_at_;
  std::int64_t reports_written_ = 0;
};

}  // namespace sgd::core
