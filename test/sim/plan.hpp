#pragma once
// What one seed stands for: a cluster, its jobs, and how often which fault happens. Everything is drawn
// here, before anything runs, so that a plan can be printed and a seed understood without a replay.

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "launcher/core/coordinator.hpp"
#include "launcher/core/quota.hpp"

namespace sgd::sim {

enum class Fault {
  kKillRank,
  kKillNodeRanks,
  kFreezeRank,       ///< No heartbeats, and no end until SIGKILL.
  kStallRank,        ///< Heartbeats, and no step.
  kExitUserError,    ///< 1
  kExitEnvironment,  ///< 70
  kExitPeerLost,     ///< 75, and nobody else has failed.
  kExitOther,        ///< 3
  kSlowStart,
  kCrashAtStart,
  kBreakLink,
  kPartition,  ///< One direction of a node's link.
  kNodeCrash,
  kNodeGone,  ///< For good; mostly an operator removes it, in time.
  kAgentRestart,
  kKeeperDeath,
  kForkServerDeath,
  kSlots,             ///< Fewer, and more again.
  kDamageCheckpoint,  ///< The newest on disk.
  kFailWrite,         ///< A checkpoint that cannot be written.
  kLateCoordinator,   ///< The process stands still for seconds.
  kLateAgent,
  kCoordinatorCrash,  ///< Between any two commands; started again from what it had stored.
  kTailLoss,          ///< And what it had stored last is not there any more.
  kUserStop,
  kNodeOrder,   ///< Drained, undrained, other slots, removed.
  kPreemption,  ///< An agent is told to end, and ends.
  kTwin,        ///< A second agent with the name of one that is well.
  kBrokenGpu,   ///< A rank ends by an error of its GPU.
};
inline constexpr std::size_t kFaults = static_cast<std::size_t>(Fault::kBrokenGpu) + 1;
[[nodiscard]] const char* name(Fault fault);
/// As nodes name them, each from 0.
[[nodiscard]] std::string gpu_name(int gpu);

struct RunPlan {
  core::RunDefinition definition;
  Duration submit_after{0};
  int train_samples = 0;
  int validation_samples = 0;
  Duration step_time{0};
  Duration write_time{0};     ///< Of a checkpoint on disk.
  Duration command_time{0};   ///< Of a rank of a command.
  bool ignores_stop = false;  ///< A command that does not end on SIGTERM.
  int result_bytes = 0;       ///< That each rank says after each step, as its result.
};

/// Its trials are runs that nobody submits.
struct ExperimentPlan {
  core::RunDefinition definition;
  Duration submit_after{0};
  RunPlan trial;         ///< What is true of each of them, beside its job.
  bool stops = false;    ///< Somebody stops it, once,
  bool goes_on = false;  ///< and wants it to go on later.
};

struct NodePlan {
  int slots = 0;
  int cpus = 0;
  bool counts_cpus = false;
  std::string zone;  ///< Its label.
  int gpus = 0;
  std::set<std::string> broken = {};  ///< Of its GPUs: a rank that has one of these ends soon.
};

struct Plan {
  std::uint64_t seed = 0;
  bool is_embedded = false;  ///< One node, in the process of its coordinator: no link is lost, nobody is silent.
  bool has_bytes = false;    ///< What goes over links, and what is stored, is text in between.
  std::vector<NodePlan> nodes;
  core::CoordinatorSettings settings;
  std::optional<core::OwnerQuota> quota;  ///< Runs have owners, who may have so much.
  bool drains_for_good = false;           ///< One node, just before the calm.
  std::vector<RunPlan> runs;
  std::vector<ExperimentPlan> experiments;
  Duration travel{0};   ///< Typical, of a checkpoint, with settings.files_travel.
  Duration latency{0};  ///< Typical, between coordinator and agent.
  Duration commit{0};   ///< Typical, of what the coordinator stores.
  double cut = 0;       ///< That its log is cut, each time when no run is live.
  Duration trouble{0};  ///< Faults happen for so long.
  std::array<double, kFaults> per_minute{};
  double crash_at_start = 0;  ///< Of each start of a rank.
  double slow_start = 0;
  double fail_write = 0;       ///< Of each checkpoint.
  double late_word = 0.01;     ///< That what a rank says takes long to be read.
  double dies_speaking = 0;    ///< Soon after a report, or a checkpoint that it has told of.
  double stray = 0.2;          ///< Of each rank whose keeper dies: it lives on.
  double late_broom = 0.3;     ///< That strays are cleared after seconds.
  double parted_at_start = 0;  ///< A node that is told to start ranks, from there on upwards.
  double refuses = 0;          ///< A node cannot begin with a run: its disk is full for that moment.
};

/// No fault lasts longer.
inline constexpr Duration kHealing = std::chrono::seconds(20);
inline constexpr Duration kNodeTimeout = std::chrono::seconds(5);
inline constexpr Duration kOrphanTimeout = std::chrono::seconds(1);  ///< Short, so that it comes at all.
inline constexpr Duration kBeatInterval = std::chrono::seconds(1);

[[nodiscard]] Plan make_plan(std::uint64_t seed);
/// Several lines for people.
[[nodiscard]] std::string describe(const Plan& plan);

}  // namespace sgd::sim
