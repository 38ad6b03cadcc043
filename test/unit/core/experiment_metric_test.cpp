// An experiment's metric that stands inside of another value of a report: it is named as callbacks name it.

#include <catch2/catch.hpp>

#include "experiment_bench.hpp"
#include "launcher/core/kept_checkpoints.hpp"

namespace sgd::core {

TEST_CASE("experiment: a metric is found in what a report nests, and so is a bound of it") {
  ExperimentBench bench;
  bench.begin({{"metric", "val/loss"}, {"mode", "min"}, {"samples", 1}, {"stop", {{"val/loss", 0.25}}}});
  bench.start(0);
  bench.report(0, 1, 0.75, "accuracy", {{"val", {{"loss", 0.5}}}});
  CHECK(bench.trial(0).best == 0.5);
  CHECK(bench.trial(0).phase == TrialPhase::kRunning);
  bench.report(0, 2, 0.75, "accuracy", {{"val", {{"loss", 0.125}}}});
  CHECK(bench.trial(0).best == 0.125);
  CHECK(bench.trial(0).phase == TrialPhase::kStopping);
  CHECK(bench.events("metric_missing").empty());
}

TEST_CASE("experiment: who misspells a nested metric is told the nested names") {
  ExperimentBench bench;
  bench.begin({{"metric", "val/los"}, {"mode", "min"}, {"samples", 1}});
  bench.start(0);
  bench.report(0, 1, 0.75, "accuracy", {{"val", {{"loss", 0.5}, {"by", {{"class", 3}}}}}});
  REQUIRE(bench.events("metric_missing").size() == 1);
  const std::string reported = bench.events("metric_missing").front().at("reported").dump();
  for (const char* name : {"\"accuracy\"", "\"val/loss\"", "\"val/by/class\""}) {
    CAPTURE(name, reported);
    CHECK(reported.find(name) != std::string::npos);
  }
}

TEST_CASE("experiment: a name with a slash is first of all a name") {
  const nlohmann::json report = {{"val/loss", 1}, {"val", {{"loss", 2}, {"by/class", 3}}}};
  CHECK(*tune::find_value(report, "val/loss") == 1);
  CHECK(*tune::find_value(report, "val/by/class") == 3);
  for (const char* name : {"val/none", "none/loss", "val/loss/", "/val", ""})
    CHECK(tune::find_value(report, name) == nullptr);
  CHECK(tune::find_value(nlohmann::json(7), "val/loss") == nullptr);
}

TEST_CASE("checkpoints: the score of a step is found in what its report nests") {
  Scores scores;
  const job::KeepBest best{"val/loss", false, 1};
  CHECK(note_score({{"step", 10}, {"val", {{"loss", 0.5}}}}, best, {"checkpoints/step-000000000010-gen-0001"}, scores));
  CHECK(scores.at(10) == 0.5);
}

}  // namespace sgd::core
