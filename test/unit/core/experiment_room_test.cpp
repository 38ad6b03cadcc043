// Who gets room first: trials, what they make way for, and runs that could grow.

#include <catch2/catch.hpp>

#include "common/exit_codes.hpp"
#include "experiment_bench.hpp"

namespace sgd::core {
namespace {

/// A run that trains with one worker on node "w", where it would like to have three.
void start_small(ExperimentBench& bench) {
  bench.node("w", 1);
  RunDefinition run;
  run.id = "small";
  run.run_dir = "/small";
  run.job.num_workers = 3;
  run.job.min_workers = 1;
  run.job.elastic_start = true;
  run.job.training.emplace();
  run.job.resolved = nlohmann::json{{"training", nlohmann::json::object()}};
  bench.on(coordinator_event::Submitted{std::move(run)});
  bench.fact("w", "small", 1, cluster::WorkerStarted{0, 1});
  bench.fact("w", "small", 2, cluster::WorkerReady{0, {}});
  bench.fact("w", "small", 3, cluster::WorkerFirstStep{0, 1});
  REQUIRE(bench.phase("small") == RunPhase::kRunning);
}

/// Whether the last event asks it to leave.
bool is_to_leave(const ExperimentBench& bench) {
  const auto wanted = bench.wanted("w", "small");
  return wanted && wanted->want == cluster::Want::kLeave;
}

}  // namespace

TEST_CASE("room: a run leaves for more workers only when the trials that begin now have left some") {
  ExperimentBench bench(0);
  start_small(bench);
  bench.begin({{"samples", 2}, {"concurrent", 2}});
  bench.node("m", 2);  // The second trial begins when the first has its place.
  CHECK(bench.phase_of(0) == RunPhase::kStarting);
  CHECK(bench.phase_of(1) == RunPhase::kStarting);
  CHECK_FALSE(is_to_leave(bench));
  bench.node("o", 1);
  CHECK(is_to_leave(bench));
}

TEST_CASE("room: a trial that takes another one's state stands behind those that wait already") {
  ExperimentBench bench(2);
  bench.begin({{"samples", 2}, {"scheduler", {{"type", "pbt"}, {"quantile", 0.5}}}});
  for (const int trial : {0, 1}) bench.start(trial);
  bench.submit("later", 1);
  for (const int trial : {0, 1}) bench.save(trial, 1);
  bench.report(0, 1, 0.9);
  bench.report(1, 1, 0.1);
  REQUIRE_FALSE(bench.trial(1).taken.empty());
  bench.exit(1, worker_exit::kStopped);
  bench.clear(1);
  CHECK(bench.phase("later") == RunPhase::kStarting);
  CHECK(bench.phase_of(1) == RunPhase::kWaiting);
}

}  // namespace sgd::core
