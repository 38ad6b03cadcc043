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

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "common/base/time.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/core/fact_counts.hpp"
#include "launcher/core/only_state.hpp"
#include "launcher/core/report_line.hpp"
#include "launcher/core/resources.hpp"
#include "launcher/core/run_state.hpp"

namespace sgd::core {

class RunMachine : private RunState {
 public:
  using State = RunState;
  /// Checkpoints that a restart may try, the newest first.
  static constexpr std::size_t kCheckpointsMax = 8;
  /// Checkpoints that wait for the reports of other ranks before them; in place of the oldest.
  static constexpr std::size_t kHeldMax = 256;
  /// Of ranks, from their order to their processes: heartbeat.stall_timeout, and not less than this.
  static constexpr Duration kStartTime = std::chrono::minutes(2);
  /// A deadline that is looked at so much later than it was due says that this process stood still.
  static constexpr Duration kLateTick = std::chrono::milliseconds(500);
  /// Generations that a store can have lost at its end; who holds a later one is not believed.
  static constexpr Generation kAheadMax = 1000;
  /// Keys that some ranks' reports lack and that are told of in one generation.
  static constexpr std::size_t kMismatchesMax = 64;
  /// Ranks of one generation that are told of since their logs lack lines; and how often, of each.
  static constexpr std::size_t kDroppersMax = 64;
  static constexpr int kDropsMax = 2;
  /// After one rank has ended with 0, the others' time to end too.
  static constexpr Duration kEarlyExitGrace = std::chrono::seconds(30);
  /// Of its last lines, and of its ranks' results: longer ones are told, and not kept when it has finished.
  static constexpr std::size_t kOutcomeBytesMax = 4 << 10;

  /// `files_travel`: as in CoordinatorSettings.
  RunMachine(RunDefinition definition, TimePoint now, bool files_travel = false);
  explicit RunMachine(State state) : State(std::move(state)) { count_ranks(); }
  [[nodiscard]] const State& state() const { return *this; }

  /// What it may have now; for one that waits, may grow or wants it: after every event that may have changed slots.
  void on_capacity(TimePoint now, Offer offer, CoordinatorCommands& out);
  /// A node has changed; one that the run does not hold is nothing to it.
  void on_view(TimePoint now, const NodeId& node, const NodeView& view, CoordinatorCommands& out);
  /// This run is to give up what it has on `node`, now: its ranks save and end, and no retry is used.
  void on_slots_lost(TimePoint now, const NodeId& node, const std::string& reason, CoordinatorCommands& out);
  void on_node_lost(TimePoint now, const NodeId& node, const std::string& reason, double silent_s,
                    CoordinatorCommands& out);
  /// `node` holds this run: told before anything is made of what it says of itself.
  void note_held(const cluster::HeldRun& held);
  /// `node` (re)connected and holds this run so (generation 0: not at all, or nobody knows): told again what is wanted.
  void on_node_back(TimePoint now, const NodeId& node, const cluster::HeldRun& held, CoordinatorCommands& out);
  FactVerdict on_fact(TimePoint now, const NodeId& node, const cluster::Fact& fact, CoordinatorCommands& out);
  void on_exchange_ask(const NodeId& node, const cluster::ExchangeAsk& ask, CoordinatorCommands& out) const;
  void on_progress(TimePoint now, const NodeId& node, const cluster::Progress& progress);
  void on_stop(TimePoint now, const StopRequest& request, CoordinatorCommands& out);
  /// Its ranks save and end, and none come until on_resume(). `saves`: what they have since their last checkpoint
  /// counts.
  void on_pause(TimePoint now, std::string reason, bool saves, CoordinatorCommands& out);
  void on_resume();
  /// Whether it is to go on from another trial's state: then its end by itself is not that of its trial.
  void note_taking(bool takes) { takes_state_ = takes; }
  /// Of one that is paused: from here on it goes on under `job`, from the state that this begins with.
  void on_clone(job::JobSpec job);
  /// Of one that has not begun: nodes that are lost may have something of its former life. It is to go, and what they
  /// know is older than what counts.
  void note_former(const RunState& former);
  void on_tick(TimePoint now, CoordinatorCommands& out);
  void on_restarted(CoordinatorCommands& out) const;
  /// Of a machine that was made of a state: its end that may not be recorded, and what counts of its files.
  void tell_open(CoordinatorCommands& out) const;
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;

  [[nodiscard]] bool finished() const { return phase_ == RunPhase::kFinished; }
  /// Starts as soon as its offer has a placement.
  [[nodiscard]] bool waits_for_room() const {
    return !is_paused_ && (phase_ == RunPhase::kPlacing || (phase_ == RunPhase::kWaiting && start_at_capacity_));
  }
  /// It has run in this life, and only waits to go on.
  [[nodiscard]] bool is_admitted() const { return generation_ >= first_generation_; }
  /// At work below its size.
  [[nodiscard]] bool may_grow() const;
  [[nodiscard]] bool grows_at_once() const { return definition_.job.recovery.scale_up == "at_once"; }
  [[nodiscard]] const RunDefinition& definition() const { return definition_; }
  [[nodiscard]] Demand demand() const;
  /// Of its newest generation, alive or not.
  [[nodiscard]] const Placement& placement() const { return placement_.world_size > 0 ? placement_ : before_; }
  [[nodiscard]] Generation desired_generation() const { return desired_generation_; }
  [[nodiscard]] GenerationUid desired_uid() const { return desired_uid_; }
  /// `node` was told something of it, ever.
  [[nodiscard]] bool has_touched(const NodeId& node) const { return touched_.contains(node); }
  /// It has to know what is free by now: call on_capacity() at once.
  [[nodiscard]] bool wants_capacity() const { return is_ready_to_count() || looks_for_room_; }
  /// Slots that the run holds on `node`.
  [[nodiscard]] int slots_used(const NodeId& node) const;
  /// It has no rank there, maybe, and waits for the word that nothing is left.
  [[nodiscard]] bool is_clearing(const NodeId& node) const;
  /// Of those of its ranks that hold slots there, one has this GPU.
  [[nodiscard]] bool holds_gpu(const NodeId& node, const std::string& gpu) const;
  /// That it does without.
  [[nodiscard]] std::vector<LeftOutGpu> gpus_left_out() const;
  [[nodiscard]] bool does_without(const NodeId& node, const std::string& gpu) const;
  /// Slots that it holds on any.
  [[nodiscard]] WorkersByNode held() const;
  /// What others may copy of it from now on is the state of this step.
  void note_compared(std::int64_t step) { compared_step_ = step; }
  /// On the coordinator's disk, absolute; empty: it has none there.
  [[nodiscard]] std::string newest_checkpoint() const;
  /// That of `step`, where it is kept, else the newest.
  [[nodiscard]] std::string checkpoint_to_copy(std::int64_t step) const;
  /// The best of those that are kept for their value, on the coordinator's disk; without a path: there is none.
  [[nodiscard]] ScoredCheckpoint best_checkpoint() const;
  /// `path` has come to the coordinator's disk, and that is news.
  [[nodiscard]] bool awaits(const std::string& path) const { return files_travel_ && !is_stored(path, arrivals_); }
  void on_checkpoint_stored(const std::string& path, CoordinatorCommands& out);
  [[nodiscard]] RunSnapshot snapshot(TimePoint now, Ranks ranks = Ranks::kShown) const;
  /// How its ranks are told of a signal that its launcher has got. Error: they are not, and why.
  [[nodiscard]] Result<std::vector<coordinator_command::SendToAgent>> signal_orders(int signal) const;

 private:
  [[nodiscard]] bool is_on(const NodeId& node, Rank rank) const;

  // run_machine.cpp: placing, starting, stopping, the end
  void start_generation(TimePoint now, CoordinatorCommands& out);
  void note_resize(TimePoint now, const Placement& before, Leave left, CoordinatorCommands& out);
  void send_desired(cluster::Want want, CoordinatorCommands& out);
  void send_desired(const NodeId& node, const NodeRecord& record, cluster::Want want, CoordinatorCommands& out);
  void send_desired(const NodeId& node, const NodeRecord& record, const cluster::DesiredRun& all,
                    CoordinatorCommands& out);
  [[nodiscard]] cluster::DesiredRun desired_run(cluster::Want want) const;
  void decide(TimePoint now, CoordinatorCommands& out);
  void on_all_exited(TimePoint now, CoordinatorCommands& out);

  // run_machine_end.cpp
  void begin_clearing(TimePoint now, CoordinatorCommands& out);
  void end_run(TimePoint now, const char* state, int exit_code, std::string error, CoordinatorCommands& out);
  void finish(TimePoint now, CoordinatorCommands& out);
  void keep_little();
  void judge_saving();
  [[nodiscard]] RunPast what_it_leaves() const;

  // run_machine_recovery.cpp: failures, waits, changes of size
  void judge(TimePoint now, CoordinatorCommands& out);
  [[nodiscard]] std::string who_left(const Failure& cause) const;
  void count_late_start(TimePoint now, CoordinatorCommands& out);
  [[nodiscard]] bool is_cleared_unfailed() const;
  void begin_recovery(TimePoint now, CoordinatorCommands& out);
  void clear_generation(TimePoint now, CoordinatorCommands& out);
  void adopt(TimePoint now, const NodeId& node, Generation held, CoordinatorCommands& out);
  void on_recovery_cleared(TimePoint now, CoordinatorCommands& out);
  [[nodiscard]] bool copies_are_ahead() const;
  void ask_again(CoordinatorCommands& out);
  void wait_for_slots(TimePoint now, CoordinatorCommands& out);
  void consider_leaving(CoordinatorCommands& out);
  void consider_growth(TimePoint now, CoordinatorCommands& out);
  void leave_at_once(std::string reason, CoordinatorCommands& out);
  void leave_at_boundary(std::string reason, CoordinatorCommands& out);
  void complete_recovery(TimePoint now, CoordinatorCommands& out);
  void check_early_exit(TimePoint now);
  void check_reports(TimePoint now);
  void tell_missing_reports(CoordinatorCommands& out) const;
  void check_start(TimePoint now);
  void note_peer_loss(TimePoint now, CoordinatorCommands& out);
  [[nodiscard]] bool is_missed(const NodeId& node) const;
  void lose_node(TimePoint now, const NodeId& node, const std::string& reason, double silent_s,
                 CoordinatorCommands& out);
  [[nodiscard]] std::vector<std::string> checkpoints_to_try() const;
  [[nodiscard]] bool is_same_shape() const;
  [[nodiscard]] bool is_bit_exact() const;

  // run_machine_counts.cpp
  [[nodiscard]] bool all_exited() const;
  [[nodiscard]] bool all_cleared() const;
  [[nodiscard]] bool all_started() const;
  void count_ranks();
  void set_phase(RankRecord& rank, RankPhase phase);
  void end_rank(RankRecord& rank);
  void clear_node(NodeRecord& node);
  void clear_none_but_lost();

  // run_machine_gpus.cpp
  void on_no_other_node(TimePoint now, CoordinatorCommands& out);
  void note_started();
  void note_gpu_fault(const Failure& cause, CoordinatorCommands& out);
  [[nodiscard]] std::string without_gpus() const;

  // run_machine_pause.cpp
  void note_paused(CoordinatorCommands& out);

  // run_machine_ports.cpp
  void send_starts(CoordinatorCommands& out);
  void send_start(const NodeId& node, const NodeRecord& record, CoordinatorCommands& out);
  void on_port(TimePoint now, const NodeId& node, const cluster::PortReserved& reserved, CoordinatorCommands& out);
  [[nodiscard]] bool reserves_ports(const NodeId& node) const;
  [[nodiscard]] bool has_ports() const;
  [[nodiscard]] std::vector<std::string> endpoints() const;
  void add_backend(cluster::DesiredRun& desired) const;

  // run_machine_facts.cpp
  void on_body(TimePoint now, const NodeId& node, const cluster::FactBody& body, CoordinatorCommands& out);
  void on_exited(TimePoint now, const NodeId& node, const cluster::WorkerExited& exited, CoordinatorCommands& out);
  void on_started(TimePoint now, const NodeId& node, const cluster::WorkerStarted& started, CoordinatorCommands& out);
  void on_checkpoint(const link::CheckpointSaved& checkpoint, CoordinatorCommands& out);
  void accept(const link::CheckpointSaved& checkpoint, CoordinatorCommands& out);
  void accept_reported(CoordinatorCommands& out);
  void choose_checkpoints();
  void forget_come();
  void note_here(const std::string& path);
  void clone_past(const std::string& from);
  [[nodiscard]] std::string told(const std::string& checkpoint) const;
  [[nodiscard]] std::string whole(const std::string& checkpoint) const;
  [[nodiscard]] std::vector<std::string> with_compared(const std::vector<std::string>& kept) const;
  void note_newest();
  void note_best(const KeptCheckpoints& kept);
  void judge_line(const link::ReportKey& key, const nlohmann::ordered_json& line, CoordinatorCommands& out);
  void on_checkpoint_failed(const link::CheckpointFailed& failed, CoordinatorCommands& out);
  void on_rejected(const link::CheckpointRejected& rejected, CoordinatorCommands& out);
  void note_step(std::int64_t step);
  void on_result(const cluster::ResultMade& result);
  void on_ready(TimePoint now, const cluster::WorkerReady& ready, CoordinatorCommands& out);
  void on_first_step(TimePoint now, const cluster::WorkerFirstStep& step, CoordinatorCommands& out);
  void on_exchange(TimePoint now, const NodeId& node, const cluster::ExchangePut& put, CoordinatorCommands& out);
  void on_report(TimePoint now, const cluster::Report& report, CoordinatorCommands& out);
  void write_line(TimePoint now, const ReducedReport& line, std::int64_t step, CoordinatorCommands& out);
  void take_last_line(TimePoint now, const cluster::WorkerExited& exited, CoordinatorCommands& out);
  void on_keeper_lost(TimePoint now, const NodeId& node, const cluster::KeeperLost& lost);
  void on_cleared(const NodeId& node);
  [[nodiscard]] std::map<Rank, WorkerPlace> worker_places() const;
  void add_failure(TimePoint now, Failure failure);
  void add_living(TimePoint now, const NodeId& node, const std::vector<OtherError>& others);
  void ask_for_errors(const NodeId& asked_already, CoordinatorCommands& out) const;
  void on_raised(TimePoint now, const NodeId& node, const cluster::RanksRaised& raised);

  // run_machine_warnings.cpp
  void note_straggler(int epoch, const Straggler& found, CoordinatorCommands& out);
  void note_mismatch(const link::ReportKey& key, const KeyMismatch& mismatch, CoordinatorCommands& out);
  void note_dropped(const NodeId& node, const cluster::OutputDropped& dropped, CoordinatorCommands& out);

  [[nodiscard]] bool decided(TimePoint now) const;
  [[nodiscard]] std::string reason() const;
  void record(nlohmann::ordered_json event, CoordinatorCommands& out) const;
  [[nodiscard]] bool is_live() const;
  /// A generation that this machine has told nobody of.
  [[nodiscard]] bool is_news(const cluster::HeldRun& held) const;
  void want_generation(TimePoint now, Generation generation);
  [[nodiscard]] Generation next_generation() const { return std::max(generation_, newest_held_) + 1; }
  /// Starts in a row that a node could not begin with.
  [[nodiscard]] Generation refusals() const { return static_cast<Generation>(budget_.refusals()); }
  /// Also the one after starts that a node could not begin with.
  [[nodiscard]] bool is_first_start() const { return generation_ - first_generation_ <= refusals(); }
  [[nodiscard]] Duration start_time() const { return std::max(definition_.job.heartbeat.stall_timeout, kStartTime); }
  [[nodiscard]] bool is_ready_to_count() const {
    return phase_ == RunPhase::kWaiting && start_at_capacity_ && !wait_until_ && !is_queued_ && !is_paused_;
  }
  [[nodiscard]] int slots_of(const NodeRecord& node) const;
  [[nodiscard]] bool is_training() const { return definition_.job.training.has_value(); }
  [[nodiscard]] RankRecord* find(Rank rank);
};
static_assert(has_only_state<RunMachine>(), "a field of the machine belongs into RunState");

}  // namespace sgd::core
