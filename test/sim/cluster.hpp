#pragma once
// One seed's cluster: a coordinator, its nodes, and all processes that ever lived on them. Checks after
// each order of the coordinator, and at each start of a process, what concerns several runs or nodes.

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "launcher/core/coordinator.hpp"
#include "test/sim/experiment_check.hpp"
#include "test/sim/gpu_check.hpp"
#include "test/sim/host.hpp"
#include "test/sim/keeper.hpp"
#include "test/sim/known_nodes.hpp"
#include "test/sim/log.hpp"
#include "test/sim/node.hpp"
#include "test/sim/pass_check.hpp"
#include "test/sim/port_check.hpp"
#include "test/sim/quota_check.hpp"
#include "test/sim/run_state.hpp"
#include "test/sim/silence_check.hpp"
#include "test/sim/worker.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class Cluster {
 public:
  explicit Cluster(World& world);

  void tell(core::CoordinatorEvent event) {
    silences_.on_arrival(event);
    coordinator_.tell(std::move(event));
  }
  void pause_coordinator(Duration duration);
  /// Dies after some of the commands that come next, and is built again later, without what was stored last if
  /// `loses_tail`; false when it is dying already.
  bool crash_coordinator(bool loses_tail);
  [[nodiscard]] bool coordinator_alive() const { return coordinator_.alive() && !is_crashed_; }
  void stop_run(RunState& run, const core::StopRequest& request);
  void stop_experiment(const RunId& experiment, const core::StopRequest& request);
  /// As soon as it has ended.
  void resume_when_ended(const RunId& experiment);
  /// An operator's, who asks first whether it makes sense; false: it does not.
  bool order(const NodeId& node, const core::NodeOrder& order);
  /// Repeated until it is stored; `for_good`: no other order ends it.
  void drain_until_done(const NodeId& node, bool is_drained, bool for_good = false);
  /// Repeated until it is stored.
  void remove_until_done(const NodeId& node);
  /// A second agent says that it is `node`; it must be turned away.
  bool send_twin(Node& node);

  /// Where files travel: `node` has saved it, and brings it to the coordinator.
  void send_checkpoint(RunState& run, const std::string& path, Node& node);
  /// The coordinator has it, or a node that can be asked.
  [[nodiscard]] bool is_within_reach(const Saved& saved);

  [[nodiscard]] Keeper& add_keeper(Node& node, const RunId& run);
  [[nodiscard]] Worker& add_worker(RunState& run, Keeper& keeper, Worker::Identity identity);

  [[nodiscard]] const core::Coordinator& coordinator() const { return coordinator_.core(); }
  [[nodiscard]] const KnownNodes& known() const { return known_; }
  [[nodiscard]] const PassCheck& passes() const { return passes_; }
  [[nodiscard]] PortCheck& ports() { return ports_; }
  [[nodiscard]] GpuCheck& gpus() { return gpus_; }
  /// Its owner has too many.
  [[nodiscard]] bool is_refused(const RunId& run) const { return quotas_.refuses(run); }
  /// Nothing: it was not submitted, or that is not stored.
  [[nodiscard]] std::optional<TimePoint> submitted_at(const RunId& run) const {
    const auto known = submitted_.find(run);
    return known == submitted_.end() ? std::nullopt : std::optional(known->second);
  }
  [[nodiscard]] bool coordinator_paused() const { return coordinator_.paused(); }
  [[nodiscard]] std::deque<Node>& nodes() { return nodes_; }
  [[nodiscard]] std::map<RunId, RunState>& runs() { return runs_; }
  [[nodiscard]] std::map<RunId, ExperimentCheck>& experiments() { return experiments_; }
  /// Of a trial: its experiment's; else nothing.
  [[nodiscard]] ExperimentCheck* parent_of(const RunState& run);

 private:
  void drain_until_done(const NodeId& node, bool is_drained, bool for_good, int number);
  void submit(const RunPlan& plan);
  void submit(const ExperimentPlan& plan);
  void make_trial(const core::RunDefinition& run);
  void begin_trial(const core::RunDefinition& run);
  void bring_checkpoint(RunState& run, const std::string& path, Node& node);
  void tell_stored_again();
  void take_checkpoint(const core::coordinator_command::TakeCheckpoint& take);
  void note_trials(const core::CoordinatorCommands& commands);
  void check_forgotten(const RunId& run);
  void die_now();
  void restart_coordinator();
  void forget_tail();
  void cut_if_idle();
  void record(const core::CoordinatorCommand& command);
  [[nodiscard]] bool record_of_experiment(const core::CoordinatorCommand& command);
  /// Of what is a record; nothing: it is none.
  [[nodiscard]] static std::optional<std::string> words_of(const core::CoordinatorCommand& command);
  void note_link(const core::coordinator_event::FromAgent& arrived);
  void judge(const core::CoordinatorEvent& event, const core::CoordinatorCommands& commands);
  void note(const core::coordinator_command::Store& store);
  void note_stop(const core::coordinator_command::Store& store);
  void note_submitted(const RunId& run);
  void note_quota(const core::CoordinatorCommand& command);
  void take(core::CoordinatorCommand&& command);
  void carry_out(core::CoordinatorCommand&& command);
  /// Without `link`: for whatever agent is there.
  void send(const NodeId& node, cluster::ToAgent message, std::optional<core::LinkNumber> link);
  void part_soon(Wire& wire);
  void note_placement(const NodeId& node, const cluster::DesiredRun& desired);
  void check_start(const RunId& id, const cluster::DesiredRun& desired);
  void check_place(const RunId& starting, const Node& place, std::size_t ranks);
  void check_slots(const RunId& starting, const Node& place, const KnownNode& known);
  [[nodiscard]] bool is_on_drained(const RunId& run, const cluster::DesiredRun& desired);
  void refuse(const core::coordinator_command::RefuseAgent& refused);
  void check_loss(const nlohmann::ordered_json& event);
  void check_end(const RunId& id);
  void check_drained(const NodeId& node);
  void check_memory();
  void check_cores(const RunState& run, Keeper& keeper, const Worker::Identity& identity);
  [[nodiscard]] Node& node(const NodeId& id);

  World& world_;
  Host<core::Coordinator, core::CoordinatorEvent, core::coordinator_event::Tick, core::CoordinatorCommand> coordinator_;
  std::deque<Node> nodes_;
  std::map<RunId, RunState> runs_;
  std::map<RunId, ExperimentCheck> experiments_;
  std::map<RunId, RunPlan> trials_;  ///< Of experiments, as far as they were thought of.
  std::deque<Keeper> keepers_;
  std::deque<Worker> workers_;
  KnownNodes known_;
  struct Placed {
    Generation generation = 0;
    KnownNodes known;
  };
  std::map<RunId, Placed> placed_;  ///< Of commands, when rank 0's node was told first to prepare.
  PassCheck passes_;
  QuotaCheck quotas_;
  std::set<NodeId> drained_for_good_;
  std::map<NodeId, int> drain_orders_;
  NodeId removed_;                                   ///< By the order that was stored last.
  Incarnation twin_ = 0;                             ///< The newest second agent.
  std::map<Incarnation, std::int64_t> facts_taken_;  ///< And stored, without a gap.
  PortCheck ports_;
  GpuCheck gpus_;
  SilenceCheck silences_{world_};
  Log log_;                               ///< What outlives the coordinator's process.
  std::map<RunId, TimePoint> submitted_;  ///< And stored.
  std::set<RunId> asked_;                 ///< To be submitted, of this life of the coordinator.
  KnownNodes decided_;                    ///< As known_, with what is given and not yet stored.
  std::map<RunId, Generation> leaving_;   ///< Asked to leave, and not yet told.
  std::size_t recorded_ = 0;          ///< Events, lines and ends of runs that were carried out, since the log was cut.
  std::vector<std::string> outputs_;  ///< Of each of them, what it said.
  std::size_t noted_ = 0;             ///< Stored events whose barrier was passed, since then.
  int crash_in_ = 0;                  ///< Commands until it dies; 0: it lives.
  bool loses_tail_ = false;           ///< When it dies.
  bool is_refusal_ = false;           ///< The first command in work: it concerns a connection, and waits for nothing.
  bool is_crashed_ = false;
  bool is_replaying_ = false;
  std::map<RunId, Generation> interrupted_;  ///< Newest at the last restart.
  /// From a node's trouble to the record of its loss, at most.
  static constexpr Duration kLossTime = kNodeTimeout + std::chrono::seconds(2) + Log::kCommitMost;
  TimePoint late_from_{};  ///< The coordinator stood still between the two, now and then.
  TimePoint late_until_{};
};

}  // namespace sgd::sim
