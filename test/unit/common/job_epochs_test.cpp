// What an epoch is, when training ends, and which parameters have settings of their own.
#include <catch2/catch.hpp>

#include "test/unit/common/job_support.hpp"

namespace sgd {
namespace {

using Lines = std::vector<std::string>;

test::Loaded epochs_job(const std::string& training) {
  return test::load_text(
      R"({"training": {"batch_size": 4, "model": {"type": "linear"}, "dataset": {"type": "linear"}, )"
      "\"loss\": \"mse\",\n" +
      training + "}}");
}

}  // namespace

TEST_CASE("job: an epoch is a pass that is validated, and training ends with the last") {
  const test::Loaded loaded = epochs_job("\"seed\": 1");
  REQUIRE(loaded.lines.empty());
  const job::Training& training = *loaded.result.job->training;
  CHECK(training.steps_per_epoch == 0);
  CHECK(training.validate_every == 1);
  CHECK_FALSE(training.early_stop.has_value());
  CHECK(training.optimizer_groups.empty());
  CHECK(training.precision == "fp32");
  CHECK_FALSE(training.deterministic);
  CHECK(training.flush_denormal);
}

TEST_CASE("job: epochs of so many steps, validated now and then, until nothing gets better") {
  const test::Loaded loaded = epochs_job(
      R"("steps_per_epoch": 100, "validate_every": 5, "precision": "bf16", "deterministic": true, "flush_denormal": false,
         "early_stop": {"metric": "val_accuracy", "mode": "max"})");
  REQUIRE(loaded.lines.empty());
  const job::Training& training = *loaded.result.job->training;
  CHECK(training.steps_per_epoch == 100);
  CHECK(training.validate_every == 5);
  CHECK(training.precision == "bf16");
  CHECK(training.deterministic);
  CHECK_FALSE(training.flush_denormal);
  REQUIRE(training.early_stop);
  CHECK(training.early_stop->metric == "val_accuracy");
  CHECK_FALSE(training.early_stop->wants_least);
  CHECK(training.early_stop->patience == 3);
  CHECK(training.early_stop->min_delta == 0);
  CHECK(job::load_resolved(loaded.result.job->resolved).job->resolved == loaded.result.job->resolved);
  CHECK(epochs_job(R"("steps_per_epoch": 0)").lines ==
        Lines{R"(job.json:2:20: error: "training.steps_per_epoch" must be at least 1, got 0)"});
  CHECK(epochs_job(R"("early_stop": {"patience": 0})").lines ==
        Lines{R"(job.json:2:28: error: "training.early_stop.patience" must be at least 1, got 0)"});
  CHECK(epochs_job(R"("precision": "fp16")").lines.empty());
}

TEST_CASE("job: groups of an optimizer name parameters and what is other for them") {
  const test::Loaded loaded = epochs_job(
      R"("optimizer": {"type": "adamw", "lr": 0.1, "groups": [{"parameters": ["*.bias", "norm?"], "weight_decay": 0},
                                                               {"parameters": ["head.*"], "lr": 0.01}]})");
  REQUIRE(loaded.lines.empty());
  const auto& groups = loaded.result.job->training->optimizer_groups;
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].parameters == std::vector<std::string>{"*.bias", "norm?"});
  CHECK(groups[0].weight_decay == 0.0);
  CHECK_FALSE(groups[0].lr.has_value());
  CHECK(groups[1].lr == 0.01);
  CHECK(epochs_job(R"("optimizer": {"groups": [{"lr": 1}], "type": "sgd"})").lines.size() == 1);
  CHECK(epochs_job(R"("optimizer": {"type": "sgd", "groups": [{"parameters": ["a"], "momentum": 1}]})").lines.size() ==
        1);
}

}  // namespace sgd
