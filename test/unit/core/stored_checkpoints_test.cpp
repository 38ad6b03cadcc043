// What of a run's checkpoints no lost node takes with it, and what is made of that.

#include "launcher/core/stored_checkpoints.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "coordinator_bench.hpp"

namespace sgd::core {
namespace {

using Paths = std::vector<std::string>;

std::string path_of(int step, Generation generation = 1) {
  return fmt::format("checkpoints/step-{:012}-gen-{:04}", step, generation);
}

/// A run of one rank on node "a" of a coordinator to which files travel, that keeps one checkpoint.
struct TravelBench : CoordinatorBench {
  explicit TravelBench(bool files_travel = true) : CoordinatorBench(settings(files_travel)) {
    node("a", 1);
    RunDefinition run;
    run.id = "run";
    run.run_dir = "/run";
    run.job.training.emplace();
    run.job.checkpoint.keep = 1;
    run.job.resolved = nlohmann::json{{"training", nlohmann::json::object()}};
    on(coordinator_event::Submitted{std::move(run)});
    say("a", cluster::WorkerStarted{0, 100});
    say("a", cluster::WorkerReady{0, {}});
    say("a", cluster::WorkerFirstStep{0, 1});
  }
  static CoordinatorSettings settings(bool files_travel) {
    CoordinatorSettings settings;
    settings.node_timeout = 5s;
    settings.files_travel = files_travel;
    return settings;
  }
  void say(const NodeId& node, cluster::FactBody body) { fact(node, "run", ++sequence[node], std::move(body)); }
  void save(int step) {
    link::CheckpointSaved saved;
    saved.path = path_of(step);
    saved.step = step;
    say("a", cluster::CheckpointSaved{saved});
  }
  void store(int step) { on(coordinator_event::CheckpointStored{"run", path_of(step)}); }
  [[nodiscard]] bool is_committed() const {
    return std::any_of(commands().begin(), commands().end(), [](const CoordinatorCommand& command) {
      return std::holds_alternative<coordinator_command::Store>(command);
    });
  }
  [[nodiscard]] const Paths& checkpoints() const { return coordinator().state().runs_.at("run").state().checkpoints_; }
  /// What the rank on node "b" is given to go on from when "a" is lost with all that it has.
  [[nodiscard]] Paths after_loss() {
    node("b", 1);
    for (int second = 0; second < 10; ++second) {
      wait(1s);
      from("b", cluster::Beat{});
    }
    node("b", 1);  // Told again what is wanted.
    const auto desired = wanted("b", "run");
    return desired ? desired->resume_from : Paths();
  }
  std::map<NodeId, std::int64_t> sequence;
};

}  // namespace

TEST_CASE("stored checkpoints: only what was accepted and has come counts, in the order of acceptance") {
  Arrivals arrivals;
  note_stored("a", arrivals);
  CHECK(newest_stored(arrivals).empty());
  note_accepted("a", arrivals);
  CHECK(newest_stored(arrivals) == "a");
  note_accepted("b", arrivals);
  note_stored("c", arrivals);
  CHECK(newest_stored(arrivals) == "a");
  note_stored("b", arrivals);
  CHECK(newest_stored(arrivals) == "b");
  note_accepted("d", arrivals);
  CHECK(with_newest_stored({"d"}, arrivals) == Paths{"b", "d"});
  note_accepted("c", arrivals);
  CHECK(newest_stored(arrivals) == "c");
  note_rejected("/run/c", arrivals);
  CHECK(newest_stored(arrivals).empty());
}

TEST_CASE("stored checkpoints: several may have come before the first of them is accepted") {
  Arrivals arrivals;
  note_stored("a", arrivals);
  note_stored("b", arrivals);
  note_accepted("a", arrivals);
  CHECK(newest_stored(arrivals) == "a");
  note_accepted("b", arrivals);
  CHECK(newest_stored(arrivals) == "b");
  CHECK(arrivals.size() == 1);
}

TEST_CASE("stored checkpoints: the newest stands among the others as it was accepted") {
  Arrivals arrivals;
  for (const char* path : {"a", "b", "c"}) note_accepted(path, arrivals);
  note_stored("b", arrivals);
  CHECK(with_newest_stored({"a", "c"}, arrivals) == Paths{"a", "b", "c"});
  CHECK(with_newest_stored({"a", "b", "c"}, arrivals) == Paths{"a", "b", "c"});
  CHECK(with_newest_stored({}, arrivals) == Paths{"b"});
}

TEST_CASE("stored checkpoints: a node that brings nothing lets no list grow; limit kArrivalsMax") {
  Arrivals arrivals;
  note_accepted("first", arrivals);
  note_stored("first", arrivals);
  for (int number = 0; number < 1000; ++number) note_accepted(std::to_string(number), arrivals);
  CHECK(arrivals.size() == kArrivalsMax);
  CHECK(newest_stored(arrivals) == "first");
  for (int number = 0; number < 1000; ++number) note_stored("x" + std::to_string(number), arrivals);
  CHECK(arrivals.size() == kArrivalsMax);
}

TEST_CASE("a run whose checkpoints travel keeps the newest that has come, beside those that its job keeps") {
  TravelBench bench;
  bench.save(10);
  bench.store(10);
  CHECK(bench.is_committed());
  bench.save(20);
  CHECK(bench.checkpoints() == Paths{path_of(10), path_of(20)});
  bench.save(30);
  CHECK(bench.checkpoints() == Paths{path_of(10), path_of(30)});
  // It was on its way when the job kept it no more.
  bench.store(20);
  CHECK(bench.checkpoints() == Paths{path_of(20), path_of(30)});
  bench.store(30);
  CHECK(bench.checkpoints() == Paths{path_of(30)});
  bench.store(30);
  CHECK_FALSE(bench.is_committed());
  CHECK(bench.coordinator().state().runs_.at("run").newest_checkpoint() == "/run/" + path_of(30));
}

TEST_CASE("a node that is lost with its newest checkpoints leaves the newest that has come") {
  TravelBench bench;
  bench.save(10);
  bench.store(10);
  for (const int step : {20, 30, 40}) bench.save(step);
  CHECK(bench.after_loss() == Paths{"/run/" + path_of(40), "/run/" + path_of(10)});
}

TEST_CASE("where all see one disk nothing comes, and no other checkpoint is kept for it") {
  TravelBench bench(false);
  bench.save(10);
  bench.store(10);
  CHECK_FALSE(bench.is_committed());
  bench.save(20);
  CHECK(bench.checkpoints() == Paths{path_of(20)});
  CHECK(bench.coordinator().state().runs_.at("run").newest_checkpoint() == "/run/" + path_of(20));
}

}  // namespace sgd::core
