// A run that begins with the state of another one, which is the checkpoint of generation 0 in its folder.

#include <catch2/catch.hpp>

#include "coordinator_bench.hpp"

namespace sgd::core {
namespace {

const std::string kOrigin = "/run/checkpoints/step-000000000010-gen-0000";

/// Its ranks say what they have restored.
struct BegunBench : CoordinatorBench {
  explicit BegunBench(const char* source) {
    node("a", 1);
    RunDefinition run;
    run.id = "run";
    run.run_dir = "/run";
    run.job.training.emplace();
    run.job.resume_from = "/other";
    run.job.recovery.max_failures = 3;
    run.job.resolved = nlohmann::json{{"training", nlohmann::json::object()}};
    run.past.emplace();
    run.past->checkpoints = {kOrigin};
    run.past->epochs = 2;
    run.past->steps = 10;
    on(coordinator_event::Submitted{std::move(run)});
    first = *wanted("a", "run");
    events_of_start = commands();
    fact("a", "run", 1, cluster::WorkerStarted{0, 100});
    link::Ready ready;
    ready.step = 10;
    ready.source = source;
    fact("a", "run", 2, cluster::WorkerReady{0, ready});
  }
  cluster::DesiredRun first;
  CoordinatorCommands events_of_start;
};

bool has_event(const CoordinatorCommands& commands, const std::string& name) {
  return std::any_of(commands.begin(), commands.end(), [&](const CoordinatorCommand& command) {
    const auto* event = std::get_if<coordinator_command::RecordEvent>(&command);
    return event != nullptr && event->event.at("event") == name;
  });
}

}  // namespace

TEST_CASE("begun from: its first generation is its own, and has the other run's checkpoint to try") {
  const BegunBench bench("disk");
  CHECK(bench.first.generation == 1);
  CHECK(bench.first.resume_from == std::vector<std::string>{kOrigin});
  CHECK(has_event(bench.events_of_start, "run_started"));
  CHECK(has_event(bench.commands(), "restored"));
  const RunState& state = bench.coordinator().state().runs_.at("run").state();
  CHECK(state.outcome_.epochs == 2);
  CHECK(state.outcome_.checkpoint == "checkpoints/step-000000000010-gen-0000");
}

TEST_CASE("begun from: training does not begin anew where nothing could be read") {
  BegunBench bench("fresh");
  CHECK_FALSE(has_event(bench.commands(), "restored"));
  bench.wait(std::chrono::seconds(2));
  const RunState& state = bench.coordinator().state().runs_.at("run").state();
  CHECK(state.outcome_.state == "failed");
  CHECK(state.outcome_.exit_code == 1);
  CHECK_THAT(state.outcome_.error, Catch::Contains("must not start from the beginning: the run began from /other"));
}

}  // namespace sgd::core
