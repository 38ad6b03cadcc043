#include "test/scenario/job_of.hpp"

namespace sgd::test {
namespace {

job::Recovery recovery_of(const Words& words) {
  job::Recovery recovery;
  const std::string max_failures = words.value("max_failures", "0");
  recovery.max_failures = max_failures == "unlimited" ? job::kUnlimited : std::stoi(max_failures);
  recovery.backoff.first = words.duration("first", recovery.backoff.first);
  recovery.backoff.factor = words.number("factor", 2);
  recovery.backoff.attempts = words.number("attempts", recovery.backoff.attempts);
  recovery.scale_up = words.value("scale_up", recovery.scale_up);
  recovery.cooldown = words.duration("cooldown", recovery.cooldown);
  recovery.exclude_after = words.number("exclude_after", recovery.exclude_after);
  return recovery;
}

/// What agents read of a job.
nlohmann::json resolved(const job::JobSpec& job) {
  nlohmann::json json = {
      {"name", job.name},
      {"num_workers", job.num_workers},
      {"per_worker", {{"cpus", job.per_worker.cpus}}},
      {"recovery", {{"max_failures", job.recovery.max_failures}, {"scale_up", job.recovery.scale_up}}},
      {"heartbeat",
       {{"timeout", format_duration(job.heartbeat.timeout)},
        {"stall_timeout", format_duration(job.heartbeat.stall_timeout)}}},
      {"fork_server", job.fork_server}};
  if (job.per_worker.gpus > 0) json["per_worker"]["gpus"] = job.per_worker.gpus;
  if (job.training) json["training"] = {{"epochs", 2}};
  if (!job.training) json["command"] = job.command;
  return json;
}

}  // namespace

core::RunDefinition job_of(const Words& words) {
  core::RunDefinition run;
  run.id = words.value("id", "run");
  run.run_dir = "/runs/" + run.id;
  run.priority = words.number("priority", 0);
  run.placement_timeout = words.duration("placement_timeout", run.placement_timeout);
  job::JobSpec& job = run.job;
  job.name = "story";
  job.num_workers = words.number("workers", 1);
  job.min_workers = words.number("min_workers", 1);
  job.recovery = recovery_of(words);
  job.heartbeat.timeout = words.duration("heartbeat", job.heartbeat.timeout);
  job.heartbeat.stall_timeout = words.duration("stall", job.heartbeat.stall_timeout);
  job.per_worker.cpus = words.number("cpus", 1);
  job.per_worker.gpus = words.number("gpus", 0);
  if (words.value("strategy", "pack") == "spread") job.placement.strategy = job::PlacementRules::Strategy::kSpread;
  if (!words.value("gpu", "").empty()) job.placement.labels["gpu"] = words.value("gpu", "");
  if (!words.value("exclude", "").empty()) job.placement.exclude.push_back(words.value("exclude", ""));
  job.placement.max_per_node = words.number("max_per_node", 0);
  job.elastic_start = words.value("start", "") == "elastic";
  job.fork_server = words.number("fork_server", 1) != 0;
  job.checkpoint.keep = words.number("keep", job.checkpoint.keep);
  if (const std::string mode = words.value("best", ""); !mode.empty())
    job.checkpoint.best = {"val_loss", mode == "max", words.number("best_n", 1)};
  if (words.value("kind", "training") == "training") job.training.emplace();
  if (!job.training) job.command = {"prog", "arg"};
  job.resolved = resolved(job);
  if (const std::string time = words.value("shutdown", ""); !time.empty())
    job.resolved.edit()["process"] = {{"shutdown_timeout", time}, {"signals", {"SIGINT", "SIGTERM"}}};
  if (const std::string backend = words.value("backend", ""); !backend.empty())
    job.resolved.edit()["process"]["backend"] = backend;
  return run;
}

}  // namespace sgd::test
