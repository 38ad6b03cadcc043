#pragma once
// All that a run's machine knows, as a value: a machine made of it goes on as the one that it was taken of. A new field
// of the machine belongs here (run_machine.hpp does not compile with one of its own), and into its list in
// storage/run_state_fields.hpp (which does not compile without it).

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/core/exchange.hpp"
#include "launcher/core/failure.hpp"
#include "launcher/core/gpu_faults.hpp"
#include "launcher/core/kept_checkpoints.hpp"
#include "launcher/core/placement.hpp"
#include "launcher/core/recovery_record.hpp"
#include "launcher/core/report_reducer.hpp"
#include "launcher/core/retry_budget.hpp"
#include "launcher/core/snapshot.hpp"
#include "launcher/core/stored_checkpoints.hpp"

namespace sgd::core {

/// What the coordinator knows of a node and a run needs.
struct NodeView {
  std::string address;
  bool is_closed = false;   ///< Its link is closed; it may come back.
  bool is_drained = false;  ///< Its ranks are to leave it at the next boundary.
  bool is_leaving = false;  ///< Its agent was told to end, and waits for what is left there.
};

/// What a run may have now.
struct Offer {
  std::map<NodeId, NodeView> nodes;  ///< Of the placement.
  Placement placement;               ///< Of a run that waits: where it starts now; world_size 0: not now, and why.
  std::string reason;                ///< Of a run that waits: its place in the queue.
  bool fits_idle = false;            ///< Of a run that waits: only other runs are in its way.
  int growth = 0;                    ///< Of a run at work: workers that it may have more.
};

struct RunState {
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
    bool done = false;                   ///< Exited with 0, or with 76 when asked to stop or leave.
    bool left = false;                   ///< Exited because it was asked to leave.
    bool missed_peer = false;            ///< Exited because another rank was gone under it.
    std::vector<std::string> gpus = {};  ///< Of its own, as its node has told.
  };
  /// Why the ranks are asked to end although nobody wants the run to end.
  enum class Leave { kNo, kAtBoundary, kNow };
  /// A checkpoint, and the last report of rank 0 before it. It counts when that is a line: a restart from a state
  /// whose reports were lost with a node would leave a gap in the metrics.
  struct HeldCheckpoint {
    link::ReportKey after;
    link::CheckpointSaved checkpoint;
  };

  RunDefinition definition_;
  TimePoint submitted_at_;
  RunPhase phase_ = RunPhase::kPlacing;
  Generation generation_ = 0;
  GenerationUid generation_uid_ = 0;
  Generation desired_generation_ = 0;  ///< What nodes are told: the next one while recovering.
  GenerationUid desired_uid_ = 0;
  Generation newest_held_ = 0;  ///< By any node, ever: its number is used, whoever knows what it was.
  Generation first_generation_ = 1;
  Placement placement_;
  Placement before_;   ///< Of the generation before.
  Placement trained_;  ///< Of the last generation that made a step, else of the first one.
  int master_port_ = 0;
  std::map<NodeId, std::vector<int>> worker_ports_;  ///< Of a command whose ranks have one each: by node.
  TimePoint start_by_;  ///< All ranks of the generation have been started by then, or the start has failed.
  Offer offered_;       ///< The newest, but its nodes and placement, which became views_ and placement_.
  std::map<NodeId, NodeView> views_;  ///< Of nodes_, as far as they are not lost.
  std::set<NodeId> touched_;          ///< Nodes that may hold something of it.
  std::map<NodeId, std::string> addresses_;
  std::map<NodeId, NodeRecord> nodes_;
  std::map<Rank, RankRecord> ranks_;
  // Counted, since a run of ten thousand ranks asks after each of their facts:
  std::size_t ranks_started_ = 0;
  std::size_t ranks_exited_ = 0;
  std::size_t ranks_ready_ = 0;    ///< Ready, or making steps.
  std::size_t ranks_stepped_ = 0;  ///< Have made their first step, alive or not.
  std::size_t nodes_cleared_ = 0;
  bool has_lost_words_ = false;  ///< A keeper of this generation was lost: not all that its ranks said has been heard.
  bool has_cleared_ = false;     ///< No rank is left, and none has started since: what ends now is keepers.
  ExchangeTable exchange_;
  ReportReducer reducer_;
  CauseFinder causes_;

  RetryBudget budget_;
  GpuFaults gpu_faults_;
  std::set<NodeId> refusing_;  ///< Nodes that could not begin with it, since its ranks ran last.
  /// While only other runs are in its way on the rest: when those are asked again.
  std::optional<TimePoint> ask_again_at_;
  RecoveryRecord recovery_;
  bool was_started_ = false;  ///< All ranks of this generation have made their first step.
  bool has_state_ = false;    ///< A command whose ranks say when they have restored their state, and their first step.
  std::optional<TimePoint> started_at_;  ///< Of a command: all its ranks were executed.
  Leave leave_ = Leave::kNo;
  std::string resize_reason_;      ///< Why the next generation may have another size.
  bool start_at_capacity_ = true;  ///< While waiting: for slots; else only for the time.
  std::optional<TimePoint> wait_until_;
  bool is_paused_ = false;  ///< It is to have no ranks until it is resumed.
  /// It is to go on from another trial's state, also where its own ranks are at their end before that.
  bool takes_state_ = false;
  bool is_queued_ = false;  ///< While waiting for slots: only other runs are in the way, so no attempt is used.
  std::optional<TimePoint> placeless_since_;  ///< While placing: not even idle nodes have room. Set: the time-out runs.
  std::optional<TimePoint> grow_at_;          ///< The cooldown of the last change of size ends.
  bool looks_for_room_ = false;  ///< It could grow, or start, from now on; what was free before does not tell.
  std::optional<TimePoint> first_exit_at_;
  std::optional<Rank> straggler_;          ///< That was told of in this generation.
  std::set<std::string> mismatches_told_;  ///< "train loss": keys that some rank's reports of this generation lack.
  std::map<Rank, int> drops_told_;         ///< How often it was told that a rank's log of this generation lacks lines.
  std::vector<HeldCheckpoint> held_checkpoints_;
  /// What rank 0 of this generation could not save, and nothing that it saved since.
  std::optional<link::CheckpointFailed> unsaved_;
  std::map<NodeId, Generation> keepers_from_;  ///< As in cluster::DesiredRun.
  std::vector<std::string> checkpoints_;  ///< Accepted, absolute or relative to the run directory, the newest last.
  bool files_travel_ = false;             ///< Nodes have disks of their own,
  Arrivals arrivals_;                     ///< and these have come from them, or may; else empty.
  /// With this state it was compared with others, which may copy it: its checkpoint stays beside those that are kept.
  std::optional<std::int64_t> compared_step_;
  std::set<std::string> come_;  ///< Where files travel: of all that count or may, those on the coordinator's disk.
  Scores scores_;               ///< With checkpoint.keep.best: of lines, by which the best are known.

  std::optional<StopRequest> stop_;
  RunOutcome outcome_;
  std::int64_t steps_told_ = 0;  ///< By facts: heartbeats are not stored, so nothing may depend on them.
  std::optional<TimePoint> last_report_at_;
  std::int64_t reports_written_ = 0;
};

}  // namespace sgd::core
