// What schedulers make of an optimizer's rate and momentum, and what a checkpoint brings back of it.
#include <catch2/catch.hpp>

#include "step_fixture.hpp"

namespace sgd::worker {
namespace {

/// Goes from 0.02 to 0.5 and down again, with a momentum of 0.85 to 0.95 against it.
job::Scheduler one_cycle() {
  const nlohmann::json cycle = {{"type", "one_cycle"},      {"max_lr", 0.5},        {"total_steps", 10},
                                {"pct_start", 0.3},         {"div_factor", 25},     {"final_div_factor", 1e4},
                                {"anneal_strategy", "cos"}, {"three_phase", false}, {"cycle_momentum", true},
                                {"base_momentum", 0.85},    {"max_momentum", 0.95}};
  return job::Scheduler{"batch", {cycle}};
}

}  // namespace

TEST_CASE("the scheduler counts batches or epochs") {
  job::Training training = with_rate(1);
  training.scheduler = job::Scheduler{"batch", {{{"type", "step"}, {"step_size", 2}, {"gamma", 0.1}}}};
  StepFixture batches(training);
  for (int i = 0; i < 5; ++i) (void)batches.step(batches.loss_at(1, 1), 0);
  CHECK(batches.part().learning_rate() == Approx(0.01));
  training.scheduler->frequency = "epoch";
  StepFixture epochs(training);
  for (int i = 0; i < 5; ++i) (void)epochs.step(epochs.loss_at(1, 1), 0);
  CHECK(epochs.part().learning_rate() == Approx(1));
  epochs.stepper->set_epochs_completed(2);
  CHECK(epochs.part().learning_rate() == Approx(0.1));
  CHECK_THROWS_WITH(epochs.part().step_scheduler(),
                    "step_scheduler() of optimizer \"optimizer\" needs a scheduler with \"frequency\": \"manual\"");
}

TEST_CASE("the scheduler counts the user's calls, and its state goes on counting") {
  job::Training training = with_rate(1);
  training.scheduler = job::Scheduler{"manual", {{{"type", "exponential"}, {"gamma", 0.5}}}};
  StepFixture before(training);
  before.stepper->set_epochs_completed(3);
  CHECK(before.part().learning_rate() == 1);
  before.part().step_scheduler();
  before.part().step_scheduler();
  CHECK(before.part().learning_rate() == 0.25);
  StepFixture after(training);
  after.stepper->load(before.stepper->records(), 7);
  CHECK(after.stepper->steps() == 7);
  CHECK(after.part().learning_rate() == 0.25);
  after.part().step_scheduler();
  CHECK(after.part().learning_rate() == 0.125);
  OptimizerRecord record = before.part().record();
  record.schedulers = {{{"count", 3}}};  // A checkpoint's state has held nothing else before.
  StepFixture counted(training);
  counted.stepper->load({record}, 7);
  CHECK(counted.part().learning_rate() == 0.125);
  record.schedulers = {{{"count", -3}}};
  CHECK_THROWS_WITH(counted.stepper->load({record}, 7), "scheduler state: count is missing or not a count");
}

TEST_CASE("a scheduler that counts something else than before goes on from what is done of that") {
  job::Training training = with_rate(1);
  training.scheduler = job::Scheduler{"epoch", {{{"type", "exponential"}, {"gamma", 0.5}}}};
  StepFixture before(training);
  before.stepper->set_epochs_completed(1);
  for (int i = 0; i < 3; ++i) (void)before.step(before.loss_at(1, 1), 0);
  CHECK(before.part().learning_rate() == 0.5);
  training.scheduler->frequency = "batch";
  StepFixture after(training);
  after.stepper->load(before.stepper->records(), 3);
  after.stepper->set_epochs_completed(1);
  CHECK(after.part().learning_rate() == 0.125);
  CHECK(after.part().record().batches == 3);
  training.scheduler->frequency = "epoch";
  StepFixture again(training);
  again.stepper->load(after.stepper->records(), 3);
  again.stepper->set_epochs_completed(1);
  CHECK(again.part().learning_rate() == 0.5);
  CHECK(again.part().record().batches == 3);
}

TEST_CASE("what a scheduler has made of rate and momentum goes with it when the job has none any more") {
  for (const char* type : {"sgd", "adam"}) {
    INFO(type);
    job::Training training = with_rate(1);
    training.optimizer.type = type;
    const job::Optimizer own = training.optimizer;
    training.scheduler = one_cycle();
    StepFixture cycled(training);
    for (int i = 0; i < 2; ++i) (void)cycled.step(cycled.loss_at(1, 1), 0);
    const std::vector<OptimizerRecord> records = cycled.stepper->records();
    const auto settings = [&type](StepFixture& fixture) {
      return settings_of(type, fixture.part().optimizer().param_groups().front().options());
    };
    CHECK(settings(cycled).lr == 0.5);
    training.scheduler.reset();
    StepFixture without(training);
    without.stepper->load(records, 2);
    CHECK(to_json(settings(without)) == to_json(own));
    (void)without.step(without.loss_at(1, 1), 0);  // An optimizer has no buffers for a momentum that the job has not.
    training.scheduler = job::Scheduler{"batch", {{{"type", "exponential"}, {"gamma", 0.5}}}};
    StepFixture other(training);
    other.stepper->load(records, 2);
    CHECK(settings(other).lr == 0.25);
    CHECK(settings(other).momentum == own.momentum);
    CHECK(settings(other).beta1 == own.beta1);
  }
}

TEST_CASE("the rate that is told is that of the last update, also behind a checkpoint") {
  job::Training training = with_rate(1);
  training.scheduler = job::Scheduler{"batch", {{{"type", "exponential"}, {"gamma", 0.5}}}};
  StepFixture before(training);
  CHECK(before.part().used_rate() == 1);
  for (int i = 0; i < 2; ++i) (void)before.step(before.loss_at(1, 1), 0);
  CHECK(before.part().used_rate() == 0.5);
  CHECK(before.part().learning_rate() == 0.25);
  StepFixture after(training);
  after.stepper->load({optimizer_record_from(to_json(before.part().record()))}, 2);
  CHECK(after.part().used_rate() == 0.5);
  (void)after.step(after.loss_at(1, 1), 0);
  CHECK(after.part().used_rate() == 0.25);
}

TEST_CASE("the rate that is told is of the first group that trains something") {
  const job::Training training = with_rate(0.1);
  StepFixture fixture(training);
  const auto made = make_torch_optimizer(training.optimizer, {});  // As where a group of the job names all parameters.
  add_group(with_rate(0.01).optimizer, fixture.model->parameters(), *made);
  RegisteredOptimizer one = registered("optimizer", training, fixture.model->parameters());
  one.optimizer = std::make_shared<PreparedOptimizer>("optimizer", training.optimizer.type, *made);
  one.group_of.assign(one.group_of.size(), 1);
  fixture.stepper.reset();
  fixture.stepper =
      std::make_unique<Stepper>(fixture.parameters, *fixture.collective, std::vector{one}, GradientClip{});
  CHECK(fixture.part().learning_rate() == 0.01);
  CHECK(fixture.part().used_rate() == 0.01);
  (void)fixture.step(fixture.loss_at(1, 1), 0);
  CHECK(fixture.part().used_rate() == 0.01);
  CHECK(fixture.part().record().groups.size() == 2);  // The empty group stays: older checkpoints have it, too.
  CHECK_THROWS_WITH(fixture.step(fixture.loss_at(1, NAN), 0), Catch::Contains("lower the learning rate (0.01)"));
}

TEST_CASE("a scheduler that cycles momentum gives it to an optimizer that has none") {
  job::Training training = with_rate(1);
  StepFixture plain(training);
  CHECK(plain.part().buffers().empty());
  training.scheduler = one_cycle();
  StepFixture cycled(training);
  REQUIRE(cycled.part().buffers().size() == 1);
  CHECK(cycled.part().learning_rate() == Approx(0.02));
  for (int i = 0; i < 2; ++i) (void)cycled.step(cycled.loss_at(1, 1), 0);
  CHECK(cycled.part().learning_rate() == 0.5);
}

TEST_CASE("a scheduler that follows a metric lowers the rate of the next step") {
  job::Training training = with_rate(0.1);
  const nlohmann::json plateau = {{"type", "reduce_on_plateau"},
                                  {"metric", "val_loss"},
                                  {"mode", "min"},
                                  {"factor", 0.5},
                                  {"patience", 0},
                                  {"threshold", 0.0},
                                  {"threshold_mode", "rel"},
                                  {"cooldown", 0},
                                  {"min_lr", 0},
                                  {"eps", 0}};
  training.scheduler = job::Scheduler{"epoch", {plateau}};
  StepFixture fixture(training);
  CHECK(fixture.part().metric() == "val_loss");
  fixture.part().observe(1);
  CHECK(fixture.part().learning_rate() == 0.1);
  fixture.part().observe(2);
  CHECK(fixture.part().learning_rate() == 0.05);
}

}  // namespace sgd::worker
