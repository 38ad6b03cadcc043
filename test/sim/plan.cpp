#include "test/sim/plan.hpp"

#include <fmt/format.h>

#include "test/sim/chance.hpp"
#include "test/sim/experiment_plan.hpp"

namespace sgd::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

struct Kind {
  Fault fault;
  const char* name;
  double most;  ///< A minute, when a seed has much of it.
};
constexpr Kind kKinds[] = {
    {Fault::kKillRank, "kill rank", 8},
    {Fault::kKillNodeRanks, "kill ranks of a node", 4},
    {Fault::kFreezeRank, "freeze rank", 3},
    {Fault::kStallRank, "stall rank", 2},
    {Fault::kExitUserError, "exit 1", 0.5},
    {Fault::kExitEnvironment, "exit 70", 4},
    {Fault::kExitPeerLost, "exit 75", 4},
    {Fault::kExitOther, "exit 3", 2},
    {Fault::kSlowStart, "slow start", 0},
    {Fault::kCrashAtStart, "crash at start", 0},
    {Fault::kBreakLink, "break link", 8},
    {Fault::kPartition, "one-way partition", 4},
    {Fault::kNodeCrash, "node crash", 3},
    {Fault::kNodeGone, "node gone for good", 1.2},
    {Fault::kAgentRestart, "agent restart", 3},
    {Fault::kKeeperDeath, "keeper death", 5},
    {Fault::kForkServerDeath, "fork server death", 4},
    {Fault::kSlots, "slots", 4},
    {Fault::kDamageCheckpoint, "damaged checkpoint", 6},
    {Fault::kFailWrite, "failed write", 0},
    {Fault::kLateCoordinator, "late coordinator", 3},
    {Fault::kLateAgent, "late agent", 4},
    {Fault::kCoordinatorCrash, "coordinator crash", 3},
    {Fault::kTailLoss, "lost tail of the store", 2},
    {Fault::kUserStop, "user stop", 0.3},
    {Fault::kNodeOrder, "node order", 5},
    {Fault::kPreemption, "preemption", 2},
    {Fault::kTwin, "second agent", 4},
    {Fault::kBrokenGpu, "broken GPU", 0},
};
static_assert(std::size(kKinds) == kFaults);

/// What happens to nodes, links and operators of a cluster: where all is one process there are none.
constexpr Fault kFaultsBetween[] = {
    Fault::kBreakLink,        Fault::kPartition, Fault::kNodeCrash, Fault::kNodeGone,   Fault::kAgentRestart,
    Fault::kCoordinatorCrash, Fault::kTailLoss,  Fault::kNodeOrder, Fault::kPreemption, Fault::kTwin};

void draw_training(Chance& chance, RunPlan& run) {
  job::JobSpec& job = run.definition.job;
  job::Training& training = job.training.emplace();
  training.seed = chance.next() % 1000;
  training.epochs = chance.between(1, 8);
  training.batch_size = chance.between(job.num_workers, 16);
  training.shuffle = chance.with(0.5);
  run.train_samples = chance.between(8, 120);
  run.validation_samples = chance.between(4, 24);
  run.step_time = chance.spread_between(milliseconds(40), milliseconds(1500));
  run.write_time = chance.spread_between(milliseconds(5), milliseconds(1500));
  if (chance.with(0.02)) run.result_bytes = chance.between(10'000, 300'000);
  job.recovery.max_failures = chance.with(0.2) ? job::kUnlimited : chance.between(0, 5);
  job.recovery.scale_up = chance.with(0.5) ? "epoch" : "checkpoint";
  job.recovery.cooldown = chance.between(seconds(1), seconds(15));
  job.heartbeat.interval = chance.spread_between(milliseconds(500), seconds(4));
  job.heartbeat.timeout = job.heartbeat.interval * chance.between(3, 8);
  job.heartbeat.stall_timeout = chance.between(seconds(10), seconds(60));
  job.fork_server = chance.with(0.7);
  using Every = job::CheckpointPolicy::Every;
  job.checkpoint.every = chance.with(0.6) ? Every::kEpoch : static_cast<Every>(chance.between(0, 3));
  job.checkpoint.steps = chance.between(2, 10);
  job.checkpoint.seconds = chance.between(1, 10);
  job.checkpoint.keep = chance.between(1, 4);
  // Without a draw of its own, so that seeds stay what they are. The metric is the generation's number: many are equal.
  if (job.checkpoint.keep % 2 == 0) job.checkpoint.best = {"train_loss", run.train_samples % 2 == 0, 2};
  job.checkpoint.memory = chance.with(0.6);
}

void draw_command(Chance& chance, RunPlan& run) {
  job::JobSpec& job = run.definition.job;
  job.command = {"prog"};
  job.recovery.max_failures = chance.with(0.5) ? 0 : chance.between(1, 4);
  run.command_time = chance.spread_between(seconds(1), minutes(2));
  run.ignores_stop = chance.with(0.3);
}

/// What agents and workers read of the job.
nlohmann::json resolved(const job::JobSpec& job) {
  nlohmann::json json = {{"per_worker", {{"cpus", job.per_worker.cpus}}}, {"fork_server", job.fork_server}};
  json["recovery"] = {{"scale_up", job.recovery.scale_up}, {"max_failures", job.recovery.max_failures}};
  if (!job.training) {
    json["command"] = job.command;
    // Without a draw of its own, so that seeds stay what they are.
    if (job.recovery.max_failures % 2 != 0) json["process"] = {{"backend", "tensorflow"}};
    return json;
  }
  json["training"] = nlohmann::json::object();
  json["heartbeat"] = {{"timeout", format_duration(job.heartbeat.timeout)},
                       {"stall_timeout", format_duration(job.heartbeat.stall_timeout)}};
  return json;
}

/// A command that stops its ranks as soon as more of them have room.
void make_growing_at_once(job::JobSpec& job) {
  job.recovery.scale_up = "at_once";
  job.recovery.cooldown = std::chrono::seconds(5);
  job.elastic_start = true;
  job.resolved.edit()["recovery"]["scale_up"] = job.recovery.scale_up;
}

/// Where its workers may be, and what each takes.
void draw_placement(Chance& chance, job::JobSpec& job, int nodes) {
  using Strategy = job::PlacementRules::Strategy;
  if (chance.with(0.3)) job.placement.strategy = Strategy::kSpread;
  if (chance.with(0.1)) job.placement.max_per_node = chance.between(1, 3);
  if (chance.with(0.1)) job.placement.labels["zone"] = chance.with(0.5) ? "east" : "west";
  if (chance.with(0.1)) job.placement.exclude.push_back(fmt::format("node{}", chance.between(1, nodes)));
  if (chance.with(0.2)) job.per_worker.cpus = 2;
}

NodePlan draw_node(Chance& chance) {
  NodePlan node;
  node.slots = node.cpus = chance.between(1, 4);
  node.counts_cpus = chance.with(0.4);
  node.zone = chance.with(0.5) ? "east" : "west";
  return node;
}

core::CoordinatorSettings draw_settings(Chance& chance) {
  core::CoordinatorSettings settings;
  settings.node_timeout = kNodeTimeout;
  settings.backfill_limit = chance.spread_between(seconds(1), seconds(60));
  settings.flaps_max = chance.between(2, 12);
  settings.flap_window = chance.between(seconds(20), minutes(10));
  settings.stable_after = chance.between(seconds(1), seconds(20));
  if (chance.with(0.3)) settings.finished_max = static_cast<std::size_t>(chance.between(0, 2));
  return settings;
}

RunPlan draw_run(Chance& chance, int number, int slots, int nodes) {
  RunPlan run;
  core::RunDefinition& definition = run.definition;
  definition.id = fmt::format("run{}", number);
  definition.run_dir = "/runs/" + definition.id;
  definition.placement_timeout = chance.between(seconds(20), seconds(100));
  run.submit_after = number == 1 ? Duration{0} : chance.between(Duration{0}, seconds(30));
  job::JobSpec& job = definition.job;
  job.name = definition.id;
  job.num_workers = chance.with(0.9) ? chance.between(1, std::min(slots, 8)) : chance.between(1, 8);
  job.min_workers = chance.between(1, job.num_workers);
  job.elastic_start = chance.with(0.4);
  job.recovery.backoff.first = chance.spread_between(milliseconds(200), seconds(3));
  job.recovery.backoff.factor = chance.with(0.7) ? 2 : 1.3;
  job.recovery.backoff.attempts = chance.with(0.7) ? 10 : chance.between(1, 9);
  job.stop.grace = chance.between(seconds(1), seconds(20));
  definition.priority = chance.with(0.7) ? 0 : chance.between(-2, 2);
  draw_placement(chance, job, nodes);
  if (chance.with(0.8)) {
    draw_training(chance, run);
  } else {
    draw_command(chance, run);
  }
  job.resolved = resolved(job);
  return run;
}

void draw_owners(Chance& chance, Plan& plan) {
  plan.quota.emplace();
  plan.quota->live_max = static_cast<std::size_t>(chance.between(1, 3));
  plan.quota->queued_max = static_cast<std::size_t>(chance.between(1, 2));
  for (RunPlan& run : plan.runs) {
    run.definition.owner = chance.with(0.5) ? "eva" : "bob";
    run.definition.priority = std::min(run.definition.priority, 0);
  }
}

/// One seed in four is full of one thing that rarely meets another by chance.
enum class Theme { kNone, kQueue, kStrays, kPartedStarts, kLastWords, kStandStill };

Theme draw_theme(Chance& chance) {
  return chance.with(0.25) ? static_cast<Theme>(chance.between(1, 5)) : Theme::kNone;
}

/// Many short runs pass a wide one.
void make_queue(Chance& chance, Plan& plan, int slots) {
  plan.settings.backfill_limit = chance.between(seconds(1), seconds(4));
  for (std::size_t number = 0; number < plan.runs.size(); ++number) {
    job::JobSpec& job = plan.runs[number].definition.job;
    job.elastic_start = false;
    job.num_workers = number == 1 ? std::min(slots, 8) : 1;
    job.min_workers = std::min(job.min_workers, job.num_workers);
    if (job.training) job.training->batch_size = std::max<std::int64_t>(job.training->batch_size, job.num_workers);
    if (!job.training) plan.runs[number].command_time = chance.between(seconds(1), seconds(15));
  }
}

/// Runs share few nodes, and their keepers die.
void make_strays(Chance& chance, Plan& plan) {
  for (RunPlan& run : plan.runs) {
    run.definition.job.num_workers = run.definition.job.min_workers = 1;
    run.definition.job.recovery.max_failures = job::kUnlimited;
    run.definition.job.recovery.backoff = {milliseconds(200), 1, 100};
  }
  plan.stray = plan.late_broom = 0.8;
  plan.per_minute[static_cast<std::size_t>(Fault::kKeeperDeath)] = 60 * chance.fraction();
  plan.per_minute[static_cast<std::size_t>(Fault::kKillRank)] = 60 * chance.fraction();
}

/// Nodes are given up while what they say of starts is under way, and others wait for their slots.
void make_parted_starts(Chance& chance, Plan& plan) {
  for (RunPlan& run : plan.runs)
    if (chance.with(0.7)) run.definition.job.recovery.max_failures = 0;
  plan.parted_at_start = 0.8 * chance.fraction();
}

/// Ranks die while what they have said is under way.
void make_last_words(Chance& chance, Plan& plan) {
  for (RunPlan& run : plan.runs) {
    run.step_time = chance.between(milliseconds(40), milliseconds(120));
    run.definition.job.checkpoint.memory = true;
    if (chance.with(0.5)) run.definition.job.recovery.max_failures = chance.between(0, 1);
  }
  plan.per_minute[static_cast<std::size_t>(Fault::kKillNodeRanks)] = 10 * chance.fraction();
  plan.late_word = 0.2 + 0.5 * chance.fraction();
  plan.dies_speaking = 0.2 * chance.fraction();
}

/// Processes stand still, and nothing else happens to nodes.
void make_stand_still(Chance& chance, Plan& plan) {
  plan.per_minute = {};
  plan.per_minute[static_cast<std::size_t>(Fault::kLateCoordinator)] = 12 * chance.fraction();
  plan.per_minute[static_cast<std::size_t>(Fault::kLateAgent)] = 6 * chance.fraction();
  plan.per_minute[static_cast<std::size_t>(Fault::kKillRank)] = 4 * chance.fraction();
}

/// It goes on with whatever room there is, at once and always.
void make_patient(job::JobSpec& job) {
  job.elastic_start = true;
  job.min_workers = 1;
  job.recovery.max_failures = job::kUnlimited;
  job.recovery.backoff = {milliseconds(200), 1, 100};
  job.resolved.edit()["recovery"]["max_failures"] = job.recovery.max_failures;
}

/// Agents come and go while the coordinator stands still or waits for its disk, or are not heard while it does not.
void make_late_orders(Chance& chance, Plan& plan) {
  const auto often = [&](Fault fault, double most) {
    plan.per_minute[static_cast<std::size_t>(fault)] = most * chance.fraction();
  };
  plan.per_minute = {};
  plan.commit = chance.spread_between(milliseconds(20), seconds(2));
  if (chance.with(0.5)) {
    often(Fault::kAgentRestart, 30);
    often(Fault::kLateCoordinator, 12);
    often(Fault::kKeeperDeath, 12);
  } else {
    often(Fault::kLateAgent, 40);
    plan.parted_at_start = chance.fraction();
    for (RunPlan& run : plan.runs) make_patient(run.definition.job);
  }
}

Plan draw_plan(std::uint64_t seed) {
  Chance chance(seed);
  Plan plan;
  plan.seed = seed;
  const Theme theme = draw_theme(chance);
  const int nodes = chance.with(theme == Theme::kNone ? 0.25 : 0.5) ? 1
                    : chance.with(0.005)                            ? chance.between(6, 50)
                                                                    : chance.between(2, 5);
  int slots = 0;
  for (int node = 0; node < nodes; ++node) {
    plan.nodes.push_back(draw_node(chance));
    slots += plan.nodes.back().slots;
  }
  plan.settings = draw_settings(chance);
  if (seed % 4 == 0) {  // As with thousands of nodes.
    plan.settings.offered_at_once = 0;
    plan.settings.offer_gap = milliseconds(1LL << (seed / 4 % 6));
  }
  const bool is_shared = theme == Theme::kQueue || theme == Theme::kStrays || theme == Theme::kPartedStarts;
  const bool is_busy = is_shared || chance.with(0.3);
  const int runs = is_busy ? chance.between(4, 8) : chance.with(0.6) ? 1 : chance.between(2, 3);
  for (int number = 1; number <= runs; ++number) {
    plan.runs.push_back(draw_run(chance, number, slots, nodes));
    if (is_busy && number > 1) plan.runs.back().submit_after = chance.between(Duration{0}, seconds(90));
  }
  if (theme == Theme::kQueue) make_queue(chance, plan, slots);
  if (runs > 1 && theme == Theme::kNone && chance.with(0.15)) draw_owners(chance, plan);
  plan.latency = chance.spread_between(std::chrono::microseconds(200), milliseconds(100));
  if (chance.with(0.7)) plan.commit = chance.spread_between(std::chrono::microseconds(100), milliseconds(300));
  if (chance.with(0.5)) plan.cut = chance.fraction();
  plan.has_bytes = chance.with(0.1);
  plan.is_embedded = nodes == 1 && theme == Theme::kNone && chance.with(0.2);
  if (plan.is_embedded) plan.settings.node_timeout.reset();
  // One seed in ten has no fault at all: nothing may fail then.
  if (chance.with(0.1)) return plan;
  plan.trouble = chance.between(seconds(10), seconds(120));
  const double share = chance.with(0.2) ? 0.6 : 0.2;
  for (const Kind& kind : kKinds) {
    if (kind.fault == Fault::kBrokenGpu) continue;  // Of a chance of its own.
    if (chance.with(share)) plan.per_minute[static_cast<std::size_t>(kind.fault)] = kind.most * chance.fraction();
  }
  // What a store has lost nobody can hold against the machine: most seeds must be judged in full.
  double& tail_loss = plan.per_minute[static_cast<std::size_t>(Fault::kTailLoss)];
  if (chance.with(0.6)) tail_loss = 0;
  if (theme == Theme::kStrays) make_strays(chance, plan);
  if (theme == Theme::kStandStill) make_stand_still(chance, plan);
  if (plan.is_embedded)
    for (const Fault fault : kFaultsBetween) plan.per_minute[static_cast<std::size_t>(fault)] = 0;
  if (chance.with(share)) plan.crash_at_start = 0.2 * chance.fraction();
  if (chance.with(share)) plan.slow_start = 0.1 * chance.fraction();
  if (chance.with(share)) plan.fail_write = 0.5 * chance.fraction();
  if (chance.with(share)) plan.late_word = 0.3 * chance.fraction();
  if (chance.with(share)) plan.dies_speaking = 0.1 * chance.fraction();
  if (chance.with(share) && !plan.is_embedded) plan.parted_at_start = 0.3 * chance.fraction();
  if (theme == Theme::kPartedStarts) make_parted_starts(chance, plan);
  if (theme == Theme::kLastWords) make_last_words(chance, plan);
  plan.drains_for_good = nodes > 1 && chance.with(0.15);
  Chance others(plan.seed ^ 0x72656675736573);  // So that the plans of former seeds stay what they are.
  if (others.with(share) && !plan.is_embedded) plan.refuses = 0.4 * others.fraction();
  for (RunPlan& run : plan.runs)
    if (!run.definition.job.training && others.with(0.3)) make_growing_at_once(run.definition.job);
  if (others.with(0.08) && theme == Theme::kNone && !plan.is_embedded) make_late_orders(others, plan);
  return plan;
}

/// Of a chance of its own: the other plans stay as they are.
void draw_gpus(Plan& plan) {
  Chance chance(plan.seed ^ 0x677075);
  if (plan.trouble == Duration{0} || !chance.with(0.12)) return;
  int all = 0;
  for (NodePlan& node : plan.nodes) {
    all += node.gpus = chance.between(1, node.slots);
    for (int gpu = 0; gpu < node.gpus; ++gpu)
      if (chance.with(0.3)) node.broken.insert(gpu_name(gpu));
  }
  for (RunPlan& run : plan.runs) {
    job::JobSpec& job = run.definition.job;
    if (chance.with(0.2)) continue;
    job.per_worker.gpus = 1;
    job.num_workers = std::min(job.num_workers, all);
    job.min_workers = std::min(job.min_workers, chance.with(0.7) ? 1 : job.num_workers);
    job.recovery.exclude_after = chance.between(0, 3);
    if (chance.with(0.7)) job.recovery.max_failures = job::kUnlimited;
    job.resolved.edit()["per_worker"]["gpus"] = 1;
    job.resolved.edit()["process"]["gpu_visibility"] = "own";
    job.resolved.edit()["recovery"]["max_failures"] = job.recovery.max_failures;
  }
}

}  // namespace

std::string gpu_name(int gpu) {
  return fmt::format("GPU-{}", gpu);
}

const char* name(Fault fault) {
  return kKinds[static_cast<std::size_t>(fault)].name;
}

Plan make_plan(std::uint64_t seed) {
  Plan plan = draw_plan(seed);
  // Of its own chance: the other plans stay as they are.
  Chance chance(seed ^ 0x7261766C);
  if (!plan.is_embedded && chance.with(0.4)) {
    plan.settings.files_travel = true;
    plan.travel = chance.spread_between(milliseconds(10), seconds(20));
  }
  draw_experiments(plan);
  draw_gpus(plan);
  return plan;
}

std::string describe(const Plan& plan) {
  std::string text = fmt::format(
      "seed {}{}{}: latency {:.1f} ms, commit {:.1f} ms, faults for {:.0f} s{}{}, backfill limit {:.0f} s, unstable "
      "after {} "
      "losses within {:.0f} s, stable after {:.0f} s\n",
      plan.seed, plan.is_embedded ? ", embedded" : "", plan.has_bytes ? ", with bytes" : "",
      to_seconds(plan.latency) * 1000, to_seconds(plan.commit) * 1000, to_seconds(plan.trouble),
      plan.drains_for_good ? ", a drained node at the end" : "",
      plan.settings.files_travel ? fmt::format(", checkpoints travel for {:.2f} s", to_seconds(plan.travel)) : "",
      to_seconds(plan.settings.backfill_limit), plan.settings.flaps_max, to_seconds(plan.settings.flap_window),
      to_seconds(plan.settings.stable_after));
  for (const NodePlan& node : plan.nodes)
    text += fmt::format(
        "  a node with {} slots in {}{}{}\n", node.slots, node.zone, node.counts_cpus ? ", cores count" : "",
        node.gpus > 0 ? fmt::format(", {} GPUs, {} of them broken", node.gpus, node.broken.size()) : "");
  for (const RunPlan& run : plan.runs) {
    const job::JobSpec& job = run.definition.job;
    text += fmt::format("  {}: priority {}, {} to {} workers of {} cpus{}, max_failures {}, backoff {} x {} ({} times)",
                        job.name, run.definition.priority, job.min_workers, job.num_workers, job.per_worker.cpus,
                        job.elastic_start ? ", elastic" : "", job.recovery.max_failures,
                        format_duration(job.recovery.backoff.first), job.recovery.backoff.factor,
                        job.recovery.backoff.attempts);
    if (job.training) {
      text += fmt::format(", {} epochs of {} + {} samples, batch {}, step {:.0f} ms, write {:.0f} ms",
                          job.training->epochs, run.train_samples, run.validation_samples, job.training->batch_size,
                          to_seconds(run.step_time) * 1000, to_seconds(run.write_time) * 1000);
      text += fmt::format(", scale-up at {}, cooldown {:.1f} s, heartbeat {:.1f} s, stall {:.0f} s{}{}",
                          job.recovery.scale_up, to_seconds(job.recovery.cooldown), to_seconds(job.heartbeat.timeout),
                          to_seconds(job.heartbeat.stall_timeout), job.fork_server ? ", fork server" : "",
                          job.checkpoint.memory ? ", memory" : "");
    } else {
      text += fmt::format(", a command of {:.0f} s", to_seconds(run.command_time));
    }
    if (job.per_worker.gpus > 0) text += fmt::format(", a GPU each, left out after {}", job.recovery.exclude_after);
    if (run.result_bytes > 0) text += fmt::format(", results of {} bytes", run.result_bytes);
    text += "\n";
  }
  for (const ExperimentPlan& experiment : plan.experiments) text += describe(experiment);
  for (std::size_t fault = 0; fault < kFaults; ++fault)
    if (plan.per_minute[fault] > 0)
      text += fmt::format("  {} {:.1f} a minute\n", name(static_cast<Fault>(fault)), plan.per_minute[fault]);
  return text +
         fmt::format(
             "  crash at start {:.2f}, slow start {:.2f}, failed write {:.2f}, late word {:.2f}, end after a word "
             "{:.2f}, partition at a start {:.2f}, refused {:.2f}\n",
             plan.crash_at_start, plan.slow_start, plan.fail_write, plan.late_word, plan.dies_speaking,
             plan.parted_at_start, plan.refuses);
}

}  // namespace sgd::sim
