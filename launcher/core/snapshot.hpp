#pragma once
// A run as seen from outside, made from the machine's own state, so that what status and the
// status line show cannot differ from what decisions are made of.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/time.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/core/gpu_faults.hpp"

namespace sgd::core {

enum class RunPhase {
  kPlacing,     ///< Waits for slots.
  kStarting,    ///< Ranks start, restore and meet.
  kRunning,     ///< All ranks are ready.
  kLeaving,     ///< The ranks were asked to end, to be started again at another size.
  kRecovering,  ///< The generation has ended; what is left of it is being killed and reaped.
  kWaiting,     ///< For slots, or for the delay before the next start.
  kStopping,    ///< Asked to stop; a checkpoint is being saved.
  kClearing,    ///< The outcome is known; processes are being ended and reaped.
  kFinished,    ///< Nothing runs.
};
[[nodiscard]] const char* name(RunPhase phase);

enum class RankPhase {
  kStarting,  ///< Told to start.
  kStarted,   ///< Its process runs.
  kReady,     ///< State restored, collectives formed.
  kStepping,  ///< Its first optimizer step is done.
  kExited,    ///< Its process is gone.
};
[[nodiscard]] const char* name(RankPhase phase);

struct RankSnapshot {
  Rank rank = 0;
  NodeId node;
  int pid = 0;
  RankPhase phase = RankPhase::kStarting;
  std::int64_t step = 0;
  int epoch = 0;
  std::string activity;  ///< "train", "validate", ...
  double loss = 0;
  double samples_per_s = 0;
  std::optional<double> heartbeat_age_s;
  std::vector<double> gpu = {};  ///< As a heartbeat has it.
};

/// Whether a snapshot has a row for each rank: of many runs at a time nobody reads them.
enum class Ranks { kShown, kLeftOut };

struct RunSnapshot {
  RunId run;
  std::string name;
  std::string owner;
  int priority = 0;
  RunPhase phase = RunPhase::kPlacing;
  std::string reason;  ///< What it waits for or why it is in this phase.
  Generation generation = 0;
  int num_workers = 0;
  int world_size = 0;
  int ready = 0;  ///< Ranks whose phase is ready or later.
  int epochs_done = 0;
  int epochs = 0;         ///< Of the job; 0 for a command.
  std::int64_t step = 0;  ///< The slowest rank's.
  int epoch = 0;
  std::string activity;      ///< Of rank 0: "train", "validate", ...
  double loss = 0;           ///< Mean over ranks.
  double samples_per_s = 0;  ///< Sum over ranks.
  int failures = 0;
  double wall_s = 0;
  std::string checkpoint;
  std::vector<LeftOutGpu> gpus_left_out;  ///< The first ones.
  std::vector<RankSnapshot> ranks;
};

enum class NodePhase {
  kReady,     ///< New ranks may come.
  kClosed,    ///< Its link is closed; it may come back.
  kDrained,   ///< By an operator: nothing new comes.
  kLeaving,   ///< It was told to end.
  kUnstable,  ///< Its link was lost too often; nothing new comes until it has been well for a while.
  kLost,      ///< Given up.
};
[[nodiscard]] const char* name(NodePhase phase);

/// Of nodes that are alike.
struct NodeSum {
  int nodes = 0;
  int slots = 0;
  int used = 0;
};

/// A node as `sgd-launch nodes` shows it.
struct NodeSnapshot {
  NodeId node;
  int slots = 0;  ///< Room for workers, as ordered or as its agent offers.
  int used = 0;
  bool is_closed = false;
  NodePhase phase = NodePhase::kReady;
  std::string reason;       ///< Why nothing new comes; empty when ready.
  bool is_drained = false;  ///< Also while it is closed or lost.
  bool is_leaving = false;
  bool has_ordered_slots = false;  ///< `slots` is an operator's.
  int cpus = 0;
  bool counts_cpus = false;
  int gpus = 0;
  std::int64_t memory_bytes = 0;  ///< 0: not known.
  std::map<std::string, std::string> labels;
  std::string version;
  std::string address;
  TimePoint heard_at;         ///< Its last word.
  std::map<RunId, int> runs;  ///< Slots that each holds.
};

[[nodiscard]] nlohmann::ordered_json to_json(const RunSnapshot& snapshot);
/// Without its ranks. What is missing or of a wrong type keeps its default: it may be of another version.
[[nodiscard]] RunSnapshot snapshot_from_json(const nlohmann::ordered_json& json);
/// One JSON object; `state` is the word for its phase.
[[nodiscard]] std::string to_text(const NodeSnapshot& snapshot, const char* state, TimePoint now);
/// Of that only what a table of nodes shows: a quarter of the bytes.
[[nodiscard]] std::string to_brief_text(const NodeSnapshot& snapshot, const char* state);

}  // namespace sgd::core
