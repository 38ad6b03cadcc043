// What is said of how a run has ended.

#include <catch2/catch.hpp>

#include "experiment_bench.hpp"

namespace sgd::core {

TEST_CASE("run end: who has trained to the end and could not save is told so, also when a stop comes after that") {
  for (const bool is_stopped_then : {false, true}) {
    ExperimentBench bench;
    bench.begin({{"samples", 1}});
    bench.start(0);
    bench.report(0, 9, 0.5);
    link::CheckpointFailed failed;
    failed.step = 90;
    failed.reason = "no room";
    bench.say(0, cluster::CheckpointFailed{failed});
    bench.exit(0);
    if (is_stopped_then) bench.tell(coordinator_event::StopRequested{"x", {}});
    bench.clear(0);
    REQUIRE(bench.outcome_of("x.0000"));
    CHECK(bench.outcome_of("x.0000")->state == "failed");
    CHECK(bench.outcome_of("x.0000")->error ==
          "trained to the end, but the state of step 90 could not be saved: no room");
  }
}

}  // namespace sgd::core
