// Optimizers and schedulers of a job file: defaults, ranges, and what is refused with which words.

#include <catch2/catch.hpp>

#include "job_support.hpp"

namespace sgd {
namespace {

using Words = std::vector<std::string>;

/// A job whose second line is `key` with this value.
test::Loaded load_line(const std::string& key, const std::string& value) {
  return test::load_text(test::training_job("", "\n\"" + key + "\": " + value));
}

job::Optimizer optimizer_of(const std::string& text) {
  const test::Loaded loaded = load_line("optimizer", text);
  CHECK(loaded.lines == Words{});
  REQUIRE(loaded.result.job.has_value());
  return loaded.result.job->training->optimizer;
}

job::Scheduler scheduler_of(const std::string& text) {
  const test::Loaded loaded = load_line("scheduler", text);
  CHECK(loaded.lines == Words{});
  REQUIRE(loaded.result.job.has_value());
  // What is stored with a run is read back as the same.
  const job::LoadResult again = job::load_resolved(loaded.result.job->resolved);
  REQUIRE(again.job.has_value());
  CHECK(again.job->resolved == loaded.result.job->resolved);
  CHECK(again.job->training->scheduler->chain == loaded.result.job->training->scheduler->chain);
  return *loaded.result.job->training->scheduler;
}

struct RefusedType {
  std::string value;
  Words lines;
};

void check_refused(const std::string& key, const std::vector<RefusedType>& rows) {
  for (const RefusedType& row : rows) {
    INFO(row.value);
    const test::Loaded loaded = load_line(key, row.value);
    CHECK(loaded.lines == row.lines);
    CHECK_FALSE(loaded.result.job.has_value());
  }
}

}  // namespace

TEST_CASE("job: rmsprop, adagrad and amsgrad with PyTorch's defaults, and with values") {
  const job::Optimizer rmsprop = optimizer_of(R"({"type": "rmsprop"})");
  CHECK(rmsprop.lr == 0.01);
  CHECK(rmsprop.alpha == 0.99);
  CHECK(rmsprop.eps == 1e-8);
  CHECK(rmsprop.momentum == 0);
  CHECK_FALSE(rmsprop.centered);
  const job::Optimizer centered = optimizer_of(
      R"({"type": "rmsprop", "alpha": 0, "eps": 1e-6, "momentum": 0.9, "centered": true, "weight_decay": 0.1})");
  CHECK(centered.alpha == 0);
  CHECK(centered.eps == 1e-6);
  CHECK(centered.momentum == 0.9);
  CHECK(centered.centered);
  CHECK(centered.weight_decay == 0.1);
  const job::Optimizer adagrad = optimizer_of(R"({"type": "adagrad"})");
  CHECK(adagrad.lr == 0.01);
  CHECK(adagrad.eps == 1e-10);
  CHECK(adagrad.lr_decay == 0);
  CHECK(adagrad.initial_accumulator_value == 0);
  const job::Optimizer decaying =
      optimizer_of(R"({"type": "adagrad", "lr_decay": 0.1, "initial_accumulator_value": 0.2, "weight_decay": 0.3})");
  CHECK(decaying.lr_decay == 0.1);
  CHECK(decaying.initial_accumulator_value == 0.2);
  CHECK(decaying.weight_decay == 0.3);
  CHECK_FALSE(optimizer_of(R"({"type": "adam"})").amsgrad);
  CHECK(optimizer_of(R"({"type": "adam", "amsgrad": true})").amsgrad);
  CHECK(optimizer_of(R"({"type": "adamw", "amsgrad": true})").amsgrad);
}

TEST_CASE("job: what an optimizer may not be") {
  check_refused(
      "optimizer",
      {{R"({"type": "lbfgs"})",
        {R"(job.json:2:23: error: "training.optimizer.type" "lbfgs" is not supported: it evaluates the loss several times a step, and its line search would have to run over all ranks; use "adam" or "sgd")"}},
       {R"({"type": "RMSprop"})",
        {R"(job.json:2:23: error: "training.optimizer.type" "RMSprop" is called "rmsprop" here)"}},
       {R"({"type": "rmsprob"})",
        {R"(job.json:2:23: error: "training.optimizer.type" must be "adagrad", "adam", "adamw", "rmsprop" or "sgd", got "rmsprob"; did you mean "rmsprop"?)"}},
       {R"({"type": "rmsprop", "alpha": 1})",
        {R"(job.json:2:43: error: "training.optimizer.alpha" must be below 1, got 1)"}},
       {R"({"type": "rmsprop", "centred": true})",
        {R"(job.json:2:34: error: unknown key "centred" in "training.optimizer" of type "rmsprop"; did you mean "centered"?)"}},
       {R"({"type": "adagrad", "momentum": 0.9})",
        {R"(job.json:2:34: error: unknown key "momentum" in "training.optimizer" of type "adagrad"; type "rmsprop" or "sgd" has it)"}},
       {R"({"type": "adagrad", "lr_decay": -1})",
        {R"(job.json:2:46: error: "training.optimizer.lr_decay" must be at least 0, got -1)"}},
       {R"({"type": "adam", "amsgrad": 1})",
        {R"(job.json:2:42: error: "training.optimizer.amsgrad" must be true or false, got 1)"}}});
}

TEST_CASE("job: each scheduler has PyTorch's defaults") {
  const auto only = [](const std::string& text) {
    const job::Scheduler scheduler = scheduler_of(text);
    CHECK(scheduler.frequency == "epoch");
    REQUIRE(scheduler.chain.size() == 1);
    nlohmann::json settings = scheduler.chain.front();
    settings.erase("frequency");
    settings.erase("type");
    return settings;
  };
  using Json = nlohmann::json;
  CHECK(only(R"({"type": "step"})") == Json{{"step_size", 1}, {"gamma", 0.1}});
  CHECK(only(R"({"type": "multi_step", "milestones": [3]})") == Json{{"milestones", {3}}, {"gamma", 0.1}});
  CHECK(only(R"({"type": "exponential", "gamma": 0.9})") == Json{{"gamma", 0.9}});
  CHECK(only(R"({"type": "linear"})") == Json{{"start_factor", 1.0 / 3}, {"end_factor", 1}, {"total_iters", 5}});
  CHECK(only(R"({"type": "cosine", "t_max": 9})") == Json{{"t_max", 9}, {"eta_min", 0}});
  CHECK(only(R"({"type": "cosine_warm_restarts", "t_0": 9})") == Json{{"t_0", 9}, {"t_mult", 1}, {"eta_min", 0}});
  CHECK(only(R"({"type": "one_cycle", "max_lr": 0.1, "total_steps": 9})") == Json{{"max_lr", 0.1},
                                                                                  {"total_steps", 9},
                                                                                  {"pct_start", 0.3},
                                                                                  {"anneal_strategy", "cos"},
                                                                                  {"cycle_momentum", true},
                                                                                  {"base_momentum", 0.85},
                                                                                  {"max_momentum", 0.95},
                                                                                  {"div_factor", 25},
                                                                                  {"final_div_factor", 10000},
                                                                                  {"three_phase", false}});
  CHECK(only(R"({"type": "reduce_on_plateau"})") == Json{{"metric", "val_loss"},
                                                         {"mode", "min"},
                                                         {"factor", 0.1},
                                                         {"patience", 10},
                                                         {"threshold", 0.0001},
                                                         {"threshold_mode", "rel"},
                                                         {"cooldown", 0},
                                                         {"min_lr", 0},
                                                         {"eps", 1e-8}});
}

TEST_CASE("job: a list of schedulers, and what they count") {
  CHECK(scheduler_of(R"({"type": "step", "frequency": "manual"})").frequency == "manual");
  const job::Scheduler chain = scheduler_of(
      R"([{"type": "linear", "frequency": "batch"}, {"type": "cosine", "t_max": 8, "frequency": "batch"}])");
  CHECK(chain.frequency == "batch");
  REQUIRE(chain.chain.size() == 2);
  CHECK(chain.chain[0]["total_iters"] == 5);
  CHECK(chain.chain[1]["eta_min"] == 0);
  CHECK(scheduler_of(R"([{"type": "reduce_on_plateau"}])").chain.size() == 1);
  CHECK(scheduler_of(R"([{"type": "cosine_warm_restarts", "t_0": 4}, {"type": "step"}])").chain.size() == 2);
  const test::Loaded set = test::load_text(test::training_job(), {R"(training.scheduler=[{"type": "step"}])"});
  REQUIRE(set.result.job.has_value());
  CHECK(set.result.job->training->scheduler->chain.front()["step_size"] == 1);
  const test::Loaded changed = test::load_text(test::training_job("", R"("scheduler": {"type": "step"})"),
                                               {"training.scheduler.gamma=0.5", "training.scheduler.frequency=batch"});
  REQUIRE(changed.result.job.has_value());
  CHECK(changed.result.job->training->scheduler->chain.front()["gamma"] == 0.5);
  CHECK(changed.result.job->training->scheduler->frequency == "batch");
}

TEST_CASE("job: what a scheduler may not be") {
  check_refused(
      "scheduler",
      {{R"("cosine")",
        {R"(job.json:2:14: error: "training.scheduler" must be an object such as {"type": "step"} or a list of such objects, got "cosine")"}},
       {"[]", {R"(job.json:2:14: error: "training.scheduler" must have at least 1 items, got 0)"}},
       {R"({"type": "cosin", "t_max": 3})",
        {R"(job.json:2:23: error: "training.scheduler.type" must be "cosine", "cosine_warm_restarts", "exponential", "linear", "multi_step", "one_cycle", "reduce_on_plateau" or "step", got "cosin"; did you mean "cosine"?)"}},
       {R"({"type": "CosineAnnealingLR", "T_max": 3})",
        {R"(job.json:2:23: error: "training.scheduler.type" "CosineAnnealingLR" is called "cosine" here)"}},
       {R"({"type": "cosine", "T_max": 3})",
        {R"(job.json:2:14: error: missing key "t_max" in "training.scheduler")",
         R"(job.json:2:33: error: unknown key "T_max" in "training.scheduler" of type "cosine"; did you mean "t_max"?)"}},
       {R"({"type": "cosine", "t_max": 3, "gamma": 1})",
        {R"(job.json:2:45: error: unknown key "gamma" in "training.scheduler" of type "cosine"; type "exponential", "multi_step" or "step" has it)"}},
       {R"([{"type": "step"}, {"type": "cosine", "t_max": 3, "gamma": 1}])",
        {R"(job.json:2:64: error: unknown key "gamma" in "training.scheduler[1]" of type "cosine"; type "exponential", "multi_step" or "step" has it)"}},
       {R"([{"type": "step"}, {"type": "cosine", "t_max": 0}])",
        {R"(job.json:2:61: error: "training.scheduler[1].t_max" must be at least 1, got 0)"}},
       {R"([{"type": "step"}, {"t_max": 3}])",
        {R"(job.json:2:33: error: missing key "type" in "training.scheduler[1]": "cosine", "cosine_warm_restarts", "exponential", "linear", "multi_step", "one_cycle", "reduce_on_plateau" or "step")"}},
       {R"({"type": "multi_step", "milestones": [3, 0]})",
        {R"(job.json:2:55: error: "training.scheduler.milestones[1]" must be at least 1, got 0)"}},
       {R"({"type": "linear", "start_factor": 0})",
        {R"(job.json:2:49: error: "training.scheduler.start_factor" must be above 0, got 0)"}},
       {R"({"type": "reduce_on_plateau", "frequency": "batch"})",
        {R"(job.json:2:57: error: "training.scheduler.frequency" must be "epoch", got "batch")"}},
       {R"({"type": "step", "frequency": "steps"})",
        {R"(job.json:2:44: error: "training.scheduler.frequency" must be "epoch", "batch" or "manual", got "steps")"}}});
}

TEST_CASE("job: schedulers that do not go together") {
  check_refused(
      "scheduler",
      {{R"([{"type": "step"}, {"type": "reduce_on_plateau"}])",
        {R"(job.json:2:42: error: "training.scheduler[1].type" "reduce_on_plateau" cannot be one of several: make it the only scheduler)"}},
       {R"([{"type": "one_cycle", "max_lr": 1, "total_steps": 9}, {"type": "step"}])",
        {R"(job.json:2:24: error: "training.scheduler[0].type" "one_cycle" cannot be one of several: make it the only scheduler)"}},
       {R"([{"type": "step"}, {"type": "cosine_warm_restarts", "t_0": 3}])",
        {R"(job.json:2:42: error: "training.scheduler[1].type" "cosine_warm_restarts" sets the rate without regard to those before it: put it first)"}},
       {R"([{"type": "step", "frequency": "batch"}, {"type": "linear"}])",
        {R"(job.json:2:55: error: "training.scheduler[1].frequency" must be that of the list's first scheduler ("batch"), got "epoch")"}}});
  const char* const cycle =
      "\n\"optimizer\": {\"type\": \"adagrad\"}, \"scheduler\": {\"type\": \"one_cycle\", "
      "\"max_lr\": 1, \"total_steps\": 9}";
  CHECK(
      test::load_text(test::training_job("", cycle)).lines ==
      Words{
          R"(job.json:2:48: error: "training.scheduler.cycle_momentum" must be false with the optimizer "adagrad", which has no momentum)"});
  CHECK(test::load_text(test::training_job("", cycle), {"training.scheduler.cycle_momentum=false"}).lines.empty());
}

}  // namespace sgd
