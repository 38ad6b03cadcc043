#pragma once
// The life of one run, as the coordinator decides it.
//
//   placing --slots--> starting --all ranks ready--> running --all ranks exited 0--> clearing --all nodes cleared--> finished
//      |                  |                             |
//      |                  └──── primary failure ────────┴──> clearing (outcome failed)
//      |                  └──── stop request ───────────┴──> stopping --all exited, or deadline--> clearing
//      └── placement_timeout, stop request ──────────────────────────────────────────────────────> finished
//
// Every start of the worker group is a generation; a fact of another generation is dropped (reports and
// exits of the past never count twice). What to do with the outcome is decided before anything is cleared,
// so that consequences of clearing never become causes.

#include <map>
#include <optional>
#include <set>
#include <string>

#include "common/base/time.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/core/exchange.hpp"
#include "launcher/core/failure.hpp"
#include "launcher/core/placement.hpp"
#include "launcher/core/report_reducer.hpp"
#include "launcher/core/snapshot.hpp"

namespace sgd::core {

/// What the coordinator knows of a node and a run needs.
struct NodeView {
  std::string address;
  int free_slots = 0;
};

class RunMachine {
 public:
  RunMachine(RunDefinition definition, TimePoint now);

  /// Tries to place the run; call it when it is new and whenever slots may have changed.
  void on_capacity(TimePoint now, const std::map<NodeId, NodeView>& nodes, CoordinatorCommands& out);
  void on_port(TimePoint now, int port, CoordinatorCommands& out);
  void on_fact(TimePoint now, const NodeId& node, const cluster::Fact& fact, CoordinatorCommands& out);
  void on_exchange(TimePoint now, const NodeId& node, const cluster::ExchangePut& put, CoordinatorCommands& out);
  void on_progress(TimePoint now, const cluster::Progress& progress);
  void on_stop(TimePoint now, const StopRequest& request, CoordinatorCommands& out);
  void on_tick(TimePoint now, CoordinatorCommands& out);
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;

  [[nodiscard]] bool finished() const { return phase_ == RunPhase::kFinished; }
  /// Slots that the run holds on `node`.
  [[nodiscard]] int slots_used(const NodeId& node) const;
  [[nodiscard]] RunSnapshot snapshot(TimePoint now) const;

 private:
  struct NodeRecord {
    int node_rank = 0;
    std::vector<Rank> ranks;
    bool cleared = false;      ///< Nothing of the live generation runs there.
  };
  struct RankRecord {
    NodeId node;
    int pid = 0;
    RankPhase phase = RankPhase::kStarting;
    std::int64_t first_step = -1;
    link::Heartbeat heartbeat;
    std::optional<TimePoint> heartbeat_at;
    bool exited = false;
    bool done = false;         ///< Exited with 0, or with 76 when asked to stop.
  };

  void start_generation(TimePoint now, CoordinatorCommands& out);
  void send_desired(cluster::Want want, CoordinatorCommands& out);
  void on_body(TimePoint now, const NodeId& node, const cluster::FactBody& body, CoordinatorCommands& out);
  void on_exited(TimePoint now, const NodeId& node, const cluster::WorkerExited& exited, CoordinatorCommands& out);
  void on_started(const NodeId& node, const cluster::WorkerStarted& started, CoordinatorCommands& out);
  void on_checkpoint(const link::CheckpointSaved& checkpoint, CoordinatorCommands& out);
  void on_result(const cluster::ResultMade& result);
  void on_ready(const cluster::WorkerReady& ready, CoordinatorCommands& out);
  void on_first_step(const cluster::WorkerFirstStep& step, CoordinatorCommands& out);
  void on_report(TimePoint now, const cluster::Report& report, CoordinatorCommands& out);
  void add_failure(TimePoint now, Failure failure);
  void decide(TimePoint now, CoordinatorCommands& out);
  void begin_clearing(CoordinatorCommands& out);
  void finish(TimePoint now, CoordinatorCommands& out);
  void record(nlohmann::ordered_json event, CoordinatorCommands& out) const;
  [[nodiscard]] bool all_exited() const;
  [[nodiscard]] RankRecord* find(Rank rank);
  [[nodiscard]] static std::string state_of(const StopRequest& request);
  [[nodiscard]] static int exit_code_of(const StopRequest& request);

  RunDefinition definition_;
  TimePoint submitted_at_;
  RunPhase phase_ = RunPhase::kPlacing;
  Generation generation_ = 0;
  Placement placement_;
  int master_port_ = 0;
  std::map<NodeId, std::string> addresses_;
  std::map<NodeId, NodeRecord> nodes_;
  std::map<Rank, RankRecord> ranks_;
  ExchangeTable exchange_;
  ReportReducer reducer_;
  CauseFinder causes_;
  std::optional<StopRequest> stop_;
  RunOutcome outcome_;
  std::optional<TimePoint> last_report_at_;
  std::int64_t reports_written_ = 0;
};

}  // namespace sgd::core
