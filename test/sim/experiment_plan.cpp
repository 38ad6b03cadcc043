#include "test/sim/experiment_plan.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "common/job/load.hpp"
#include "test/sim/chance.hpp"

namespace sgd::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Json = nlohmann::json;

Json draw_scheduler(Chance& chance) {
  switch (chance.between(0, 5)) {
    case 0:
      return {{"type", "asha"}, {"reduction_factor", chance.between(2, 3)}};
    case 1:
    case 2:
      return {{"type", "asha"}, {"mode", "promote"}, {"reduction_factor", chance.between(2, 3)}};
    case 3:
      return {{"type", "hyperband"}, {"reduction_factor", 2}};
    case 4:
      return {{"type", "pbt"}, {"interval_epochs", chance.between(1, 3)}};
    default:
      return {{"type", "median"}, {"startup_trials", chance.between(1, 3)}};
  }
}

Json draw_tune(Chance& chance) {
  Json tune = {{"parameters", {{"training.optimizer.lr", {{"uniform", {0.1, 1.0}}}}}}, {"metric", "score"}};
  tune["mode"] = chance.with(0.5) ? "max" : "min";
  tune["samples"] = chance.between(2, 12);
  tune["concurrent"] = chance.with(0.2) ? 0 : chance.between(1, 5);
  if (tune["concurrent"] == 0) tune.erase("concurrent");
  tune["seed"] = chance.between(0, 1000);
  tune["max_failures"] = chance.with(0.5) ? 0 : chance.between(1, 3);
  tune["scheduler"] = draw_scheduler(chance);
  return tune;
}

Json draw_job(Chance& chance, int slots) {
  const int workers = chance.with(0.7) ? 1 : std::min(2, slots);
  Json job = {{"name", "search"}, {"num_workers", workers}, {"min_workers", workers}};
  job["recovery"] = {{"max_failures", chance.between(0, 2)},
                     {"backoff", {{"first", "300ms"}, {"factor", 2}, {"attempts", chance.between(2, 5)}}},
                     {"cooldown", "2s"}};
  job["heartbeat"] = {{"interval", "1s"}, {"timeout", "5s"}, {"stall_timeout", "20s"}};
  job["stop"] = {{"grace", fmt::format("{}s", chance.between(1, 10))}};
  job["checkpoint"] = {{"every", chance.with(0.7) ? Json("epoch") : Json({{"steps", chance.between(2, 8)}})}};
  job["training"] = {{"seed", chance.between(0, 1000)},
                     {"epochs", chance.between(2, 9)},
                     {"batch_size", chance.between(workers, 12)},
                     {"model", {{"type", "linear"}}},
                     {"loss", "mse"},
                     {"dataset", {{"type", "linear"}}},
                     {"optimizer", {{"type", "sgd"}}}};
  job["tune"] = draw_tune(chance);
  return job;
}

/// A run at work that has room to grow whenever a trial ends.
void make_growing(Chance& chance, RunPlan& run, int slots) {
  job::JobSpec& job = run.definition.job;
  if (!job.training) return;
  job.num_workers = std::min(slots, 8);
  job.min_workers = 1;
  job.elastic_start = true;
  job.placement = {};
  job.training->batch_size = std::max<std::int64_t>(job.training->batch_size, job.num_workers);
  job.training->epochs = 8;
  job.recovery.scale_up = "checkpoint";
  job.recovery.cooldown = chance.spread_between(milliseconds(10), seconds(1));
  job.recovery.max_failures = job::kUnlimited;
  job.resolved.edit()["recovery"]["scale_up"] = job.recovery.scale_up;
  run.submit_after = Duration{0};
}

}  // namespace

void draw_experiments(Plan& plan) {
  Chance chance(plan.seed ^ 0x747269616c73);
  int slots = 0;
  for (const NodePlan& node : plan.nodes) slots += node.slots;
  if (!chance.with(0.12) || plan.quota) return;
  ExperimentPlan& experiment = plan.experiments.emplace_back();
  core::RunDefinition& definition = experiment.definition;
  definition.id = "search";
  definition.run_dir = "/runs/search";
  const Json job = draw_job(chance, slots);
  definition.base = core::TrialBase{job, "/"};
  const job::LoadResult loaded = job::load_given(job, "/", {});
  definition.job = loaded.job.value();
  definition.placement_timeout = chance.between(seconds(40), seconds(100));
  definition.priority = chance.with(0.7) ? 0 : chance.between(-2, 2);
  experiment.submit_after = chance.between(Duration{0}, seconds(20));
  experiment.stops = chance.with(0.3);
  experiment.goes_on = chance.with(0.7);
  RunPlan& trial = experiment.trial;
  trial.train_samples = chance.between(8, 60);
  trial.validation_samples = chance.between(4, 12);
  trial.step_time = chance.spread_between(milliseconds(20), milliseconds(500));
  trial.write_time = chance.spread_between(milliseconds(5), milliseconds(500));
  // What it decides is to be judged, so it must not be lost. Nobody else is at work in most of these seeds.
  plan.per_minute[static_cast<std::size_t>(Fault::kTailLoss)] = 0;
  // Its state is a donor's, which nobody has twice.
  if (job.at("tune").at("scheduler").at("type") == "pbt")
    plan.per_minute[static_cast<std::size_t>(Fault::kDamageCheckpoint)] = 0;
  if (chance.with(0.6)) plan.runs.resize(1);
  if (chance.with(0.5)) make_growing(chance, plan.runs.front(), slots);
  if (chance.with(0.5)) plan.settings.finished_max = static_cast<std::size_t>(chance.between(0, 2));
  plan.settings.finished_trials_max = std::min(plan.settings.finished_max, plan.settings.finished_trials_max);
}

double score_of(const RunId& run, int epoch, Generation generation) {
  std::uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (const char c : run) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  hash = (hash ^ static_cast<std::uint64_t>(epoch)) * 1099511628211ull;
  hash = (hash ^ static_cast<std::uint64_t>(generation)) * 1099511628211ull;
  hash ^= hash >> 29;
  if (hash % 50 == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(hash % 40) / 40 + epoch * 0.01;
}

std::string describe(const ExperimentPlan& plan) {
  return fmt::format("  {}: {}, step {:.0f} ms, write {:.0f} ms, submitted after {:.1f} s{}\n", plan.definition.id,
                     plan.definition.base->given.dump(), to_seconds(plan.trial.step_time) * 1000,
                     to_seconds(plan.trial.write_time) * 1000, to_seconds(plan.submit_after),
                     plan.stops ? ", stopped once" : "");
}

}  // namespace sgd::sim
