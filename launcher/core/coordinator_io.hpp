#pragma once
// What the coordinator's machine is told, and what it asks its shell to do.

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/base/ids.hpp"
#include "common/job/spec.hpp"
#include "common/json/nlohmann.hpp"
#include "common/messages/cluster.hpp"
#include "launcher/core/failure.hpp"
#include "launcher/core/kept_checkpoints.hpp"

namespace sgd::core {

/// What an earlier life of a run left behind: it goes on from there.
struct RunPast {
  Generation generation = 0;               ///< The last one.
  std::vector<std::string> checkpoints;    ///< Whole ones on disk, absolute, the newest first.
  std::optional<link::ReportKey> written;  ///< Of the last line of metrics.jsonl.
  std::int64_t reports = 0;                ///< Lines of metrics.jsonl.
  int epochs = 0;                          ///< Finished.
  std::int64_t steps = 0;
  int failures = 0;
  nlohmann::ordered_json metrics;  ///< {"train": last line, "validate": last line}, or null.
  double wall_s = 0;               ///< That it has taken.
  /// Ranks by node of the generation that made the newest checkpoint; empty: not known.
  std::vector<std::vector<Rank>> shape;
  bool is_same_job = false;  ///< As that made the newest checkpoint, so far as steps depend on it.
  Scores scores;             ///< By which the job's best checkpoints are known; empty: it keeps none as such.
};

/// Of what an experiment makes its trials' jobs.
struct TrialBase {
  nlohmann::json given;  ///< The job as its file has it, without defaults: those of a trial depend on its values.
  std::string folder;    ///< Absolute; relative paths in it start here.
};

/// One execution of a job, as submitted.
struct RunDefinition {
  RunId id;
  std::optional<RunId> parent;  ///< Of a trial: its experiment.
  job::JobSpec job;
  std::string run_dir;          ///< Absolute.
  std::optional<RunPast> past;  ///< `resume`: this run has run before, in the same directory.
  /// For the first start. It does not run while only other runs are in the way: then the queue decides.
  Duration placement_timeout = std::chrono::seconds(100);
  int priority = 0;          ///< In the queue the higher one comes first, equal ones in the order of submission.
  std::string owner;         ///< Who submitted it, for people.
  bool may_be_root = false;  ///< As in cluster::DesiredRun.
  bool is_of_admin = false;  ///< Submitted by one: its files are not bound by the owner's quota.
  std::string request_id;    ///< Of the client's request: the same one again is the same run. Empty: none.
  std::optional<TrialBase> base = {};  ///< Of an experiment.
};

/// Why a run is to stop.
struct StopRequest {
  enum class Why { kSignal, kCancelled, kTimeout };
  Why why = Why::kCancelled;
  int signal = 0;                 ///< With kSignal.
  bool at_once = false;           ///< SIGKILL instead of a checkpoint.
  std::optional<Duration> grace;  ///< Instead of the job's.
};

/// What an operator wants of a node. It holds for later incarnations, too.
struct NodeOrder {
  enum class Kind {
    kDrain,  ///< Nothing new comes; training leaves at its next boundary, a command stays until it ends.
    kUndrain,
    kRemove,    ///< Forgets a lost node, or one that is drained and holds nothing; its link is closed.
    kSetSlots,  ///< `slots` in place of what its agent offers, and cores are not counted; below 0: as the agent offers.
  };
  Kind kind = Kind::kDrain;
  int slots = -1;  ///< With kSetSlots.
};

/// What the coordinator keeps of a node when everything else is forgotten.
struct KnownNode {
  NodeId node;
  cluster::NodeState state;          ///< As it was told last, without its runs.
  std::int64_t last_fact = 0;        ///< Of this incarnation, taken.
  bool is_closed = false;            ///< Its link.
  std::optional<TimePoint> lost_at;  ///< Nothing: it is not lost.
};
/// And of its name, whichever agent bears it.
struct KnownCondition {
  NodeId node;
  bool is_drained = false;
  std::optional<int> slots;      ///< Ordered.
  std::vector<TimePoint> flaps;  ///< Losses of its link.
  std::optional<TimePoint> unstable_until;
};

struct RunOutcome {
  std::string state;  ///< "succeeded", "failed", "interrupted", "cancelled", "timed_out", "not_placed".
  int exit_code = 0;  ///< Of sgd-launch.
  std::string error;  ///< One line, cause first; empty after success.
  std::optional<Failure> cause;
  Generation generation = 0;  ///< The last one.
  int epochs = 0;             ///< Finished.
  int job_epochs = 0;         ///< That its job wants; 0: it says nothing of epochs.
  std::int64_t steps = 0;
  int failures = 0;
  int world_size = 0;
  double wall_s = 0;
  nlohmann::ordered_json metrics;   ///< {"train": last line, "validate": last line}.
  std::string checkpoint;           ///< Newest, relative to the run directory.
  nlohmann::json best_checkpoints;  ///< [{"path", "metric", "value"}], the best first; null: none.
  nlohmann::json results;           ///< Per rank, null where a rank gave none.
  nlohmann::ordered_json tune;      ///< Of an experiment: how its trials have ended, and the best one; else null.
};

namespace coordinator_event {
struct Submitted {
  RunDefinition run;
};
struct FromAgent {
  NodeId node;
  cluster::FromAgent message;
};
/// The link to a node is closed; it may come back.
struct AgentClosed {
  NodeId node;
};
struct StopRequested {
  RunId run;
  StopRequest request;
};
struct NodeOrdered {
  NodeId node;
  NodeOrder order;
};
/// Nobody asks for a finished run any more.
struct RunForgotten {
  RunId run;
};
/// The machine's own judgement of a tick, as an event, so that a replay needs no clock of nodes.
struct NodeSilent {
  NodeId node;
  double silent_s = 0;
};
/// Takes the place of all events before it: nodes as they were when no run was live.
struct NodesKnown {
  std::vector<KnownNode> nodes;
  std::vector<KnownCondition> conditions;
};
/// An experiment that was stopped goes on, or is to have more trials.
struct ExperimentResumed {
  RunId run;
  std::int64_t samples = 0;  ///< From now on, in place of tune.samples; 0: as it was.
};
/// A line of an experiment's search program.
struct SearchSaid {
  RunId run;
  std::string line;
};
/// Which has ended, or cannot be heard any more.
struct SearchFailed {
  RunId run;
  std::string why;
};
/// A checkpoint of a run, "checkpoints/step-...", has come to the coordinator's disk, whole. Where files travel.
struct CheckpointStored {
  RunId run;
  std::string path;
};
/// A coordinator has been built again from what was stored; first event after the replay.
struct Restarted {};
struct Tick {};
}  // namespace coordinator_event

using CoordinatorEvent =
    std::variant<coordinator_event::Submitted, coordinator_event::FromAgent, coordinator_event::AgentClosed,
                 coordinator_event::StopRequested, coordinator_event::NodeOrdered, coordinator_event::RunForgotten,
                 coordinator_event::NodeSilent, coordinator_event::NodesKnown, coordinator_event::ExperimentResumed,
                 coordinator_event::SearchSaid, coordinator_event::SearchFailed, coordinator_event::CheckpointStored,
                 coordinator_event::Restarted, coordinator_event::Tick>;

/// Of a link of an agent: each that was heard of has its own.
using LinkNumber = std::uint64_t;

namespace coordinator_command {
/// A barrier: the commands behind it wait until this event is committed to what outlives the process. Replaying all
/// stored events in order gives the same machine, and the same records in the same order.
struct Store {
  TimePoint at;
  CoordinatorEvent event;
};
/// For this link alone: over a newer one its agent, or another one, has been told everything that is wanted of it.
struct SendToAgent {
  NodeId node;
  cluster::ToAgent message;
  LinkNumber link = 0;
};
/// What all of them are told alike: to be made text of once. Says nothing to an agent that does not hold its run.
struct SendToAgents {
  std::vector<NodeId> nodes;
  cluster::ToAgent message;
};
/// An experiment's new run below it: its folder and its records begin.
struct BeginTrial {
  RunDefinition run;
};
/// A checkpoint of another run's becomes one of `run`'s own, at `to`, before that may be taken away; nothing where it
/// is already.
struct TakeCheckpoint {
  RunId run;
  std::string from;
  std::string to;
};
/// What job.json of a run says from now on.
struct ChangeJob {
  RunId run;
  nlohmann::json job;
};
/// What best.json of an experiment says from now on.
struct RecordBest {
  RunId run;
  nlohmann::ordered_json best;
};
/// A line of events.jsonl without its time: {"event": ..., "generation": ..., ...}.
struct RecordEvent {
  RunId run;
  nlohmann::ordered_json event;
};
/// A line of metrics.jsonl without `_timestamp`.
struct RecordMetrics {
  RunId run;
  nlohmann::ordered_json metrics;
  link::ReportKey key = {};  ///< Of the report: users may call their values as its parts.
};
/// Of the checkpoints in the run's folder these count, oldest first. Others that are older than the last of them go.
struct KeepCheckpoints {
  RunId run;
  std::vector<std::string> paths;
};
struct Warn {
  RunId run;
  std::string message;
};
/// Every process of the run is gone and everything is recorded.
struct FinishRun {
  RunId run;
  RunOutcome outcome;
};
/// The connection whose first message was a NodeState of `node` and `incarnation` is not this node's: close it, and
/// tell nothing of its end. It comes without a Store in front of it, so that the shell sees before it carries anything
/// out whether a new connection takes the place of the node's former one (which is then closed without an AgentClosed).
struct RefuseAgent {
  NodeId node;
  Incarnation incarnation = 0;
  std::string reason;
};
/// A finished run is forgotten: nothing of it need be kept in memory.
struct ForgetRun {
  RunId run;
};
}  // namespace coordinator_command

using CoordinatorCommand =
    std::variant<coordinator_command::Store, coordinator_command::SendToAgent, coordinator_command::SendToAgents,
                 coordinator_command::BeginTrial, coordinator_command::TakeCheckpoint, coordinator_command::ChangeJob,
                 coordinator_command::RecordBest, coordinator_command::RecordEvent, coordinator_command::RecordMetrics,
                 coordinator_command::KeepCheckpoints, coordinator_command::Warn, coordinator_command::FinishRun,
                 coordinator_command::RefuseAgent, coordinator_command::ForgetRun>;
using CoordinatorCommands = std::vector<CoordinatorCommand>;

}  // namespace sgd::core
