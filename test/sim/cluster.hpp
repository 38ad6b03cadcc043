#pragma once
// One seed's cluster: a coordinator, its nodes, and all processes that ever lived on them. Checks after
// each order of the coordinator, and at each start of a process, what concerns several runs or nodes.

#include <deque>
#include <map>
#include <memory>
#include <string>

#include "launcher/core/coordinator.hpp"
#include "test/sim/host.hpp"
#include "test/sim/keeper.hpp"
#include "test/sim/node.hpp"
#include "test/sim/run_state.hpp"
#include "test/sim/worker.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class Cluster {
 public:
  explicit Cluster(World& world);

  void tell(core::CoordinatorEvent event) { coordinator_.tell(std::move(event)); }
  void pause_coordinator(Duration duration);
  /// Dies after some of the commands that come next, and is built again later; false when it is dying already.
  bool crash_coordinator();
  [[nodiscard]] bool coordinator_alive() const { return coordinator_.alive() && !is_crashed_; }
  void stop_run(RunState& run, const core::StopRequest& request);

  [[nodiscard]] Keeper& add_keeper(Node& node, const RunId& run);
  [[nodiscard]] Worker& add_worker(RunState& run, Keeper& keeper, Worker::Identity identity);

  [[nodiscard]] const core::Coordinator& coordinator() const { return coordinator_.core(); }
  [[nodiscard]] bool coordinator_paused() const { return coordinator_.paused(); }
  [[nodiscard]] std::deque<Node>& nodes() { return nodes_; }
  [[nodiscard]] std::map<RunId, RunState>& runs() { return runs_; }

 private:
  void submit(const RunPlan& plan);
  void die_now();
  void restart_coordinator();
  void record(const core::CoordinatorCommand& command);
  void observe(const core::CoordinatorEvent& event);
  void note_slots(const core::CoordinatorEvent& event);
  void carry_out(core::CoordinatorCommand&& command);
  void send(const NodeId& node, cluster::ToAgent message);
  void reserve_port(const core::coordinator_command::ReservePort& wanted);
  void check_start(const RunId& id, const cluster::DesiredRun& desired);
  void check_slots(const RunId& starting, const Node& place);
  void check_loss(const nlohmann::ordered_json& event);
  void check_end(const RunId& id);
  [[nodiscard]] Node& node(const NodeId& id);

  World& world_;
  Host<core::Coordinator, core::CoordinatorEvent, core::coordinator_event::Tick, core::CoordinatorCommand> coordinator_;
  std::deque<Node> nodes_;
  std::map<RunId, RunState> runs_;
  std::deque<Keeper> keepers_;
  std::deque<Worker> workers_;
  std::map<NodeId, int> known_slots_;                ///< As the coordinator was told.
  std::map<RunId, std::map<NodeId, int>> slots_at_placement_;  ///< Of commands, when the newest port was asked for.
  std::map<Incarnation, std::int64_t> facts_taken_;  ///< Without a gap.
  std::map<int, NodeId> ports_;                      ///< Reserved, each on one node.
  std::vector<core::coordinator_command::Store> stored_;  ///< What outlives the coordinator's process.
  std::size_t recorded_ = 0;                         ///< Events, lines and ends of runs that were carried out.
  int crash_in_ = 0;                                 ///< Commands until it dies; 0: it lives.
  bool is_crashed_ = false;
  std::map<RunId, Generation> interrupted_;          ///< Newest at the last restart.
  TimePoint late_until_{};                           ///< The coordinator has stood still.
};

}  // namespace sgd::sim
