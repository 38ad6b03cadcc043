// One optimizer step on one rank.
#include <catch2/catch.hpp>

#include "worker/collective/factory.hpp"
#include "worker/torch/models.hpp"
#include "worker/torch/stepper.hpp"

namespace sgd::worker {
namespace {

struct StepFixture {
  explicit StepFixture(const job::Training& training = {})
      : model(make_model({{"type", "linear"}, {"init", "zeros"}}, {{1}, 1})), parameters(*model) {
    CollectiveSetup setup;
    setup.gradient_count = parameters.size();
    collective = make_collective(setup);
    stepper = std::make_unique<Stepper>(parameters, *collective, training);
  }
  at::Tensor loss_at(float x, float y) {
    return at::mse_loss(model->forward(at::full({1, 1}, x)), at::full({1, 1}, y));
  }
  float weight() { return model->named_parameters()["linear.weight"].item<float>(); }

  std::shared_ptr<Model> model;
  FlatParameters parameters;
  std::unique_ptr<Collective> collective;
  std::unique_ptr<Stepper> stepper;
};

job::Training with_rate(double lr) {
  job::Training training;
  training.optimizer.lr = lr;
  return training;
}

}  // namespace

TEST_CASE("a step follows the gradient and returns the control word") {
  StepFixture fixture(with_rate(0.1));
  const at::Tensor loss = fixture.loss_at(2, 3);
  CHECK(fixture.stepper->step(loss, control::kCheckpoint) == control::kCheckpoint);
  CHECK(fixture.weight() == Approx(0.1 * 2 * 3 * 2));  // -lr * d/dw (w x + b - y)^2 at w = b = 0.
  CHECK(fixture.stepper->steps() == 1);
  CHECK(fixture.stepper->last_loss() == 9);
}

TEST_CASE("gradients do not add up over steps, whatever the user's code does to them") {
  StepFixture plain(with_rate(0.1));
  StepFixture dropped(with_rate(0.1));
  for (int i = 0; i < 3; ++i) {
    (void)plain.stepper->step(plain.loss_at(1, 1), 0);
    dropped.model->zero_grad();  // Drops the views.
    (void)dropped.stepper->step(dropped.loss_at(1, 1), 0);
  }
  CHECK(plain.weight() == dropped.weight());
}

TEST_CASE("a loss that is not finite changes no weight and names step and rank") {
  StepFixture fixture(with_rate(0.1));
  (void)fixture.stepper->step(fixture.loss_at(1, 1), 0);
  const float before = fixture.weight();
  CHECK_THROWS_WITH(fixture.stepper->step(fixture.loss_at(1, NAN), 0), "the loss is not finite at step 2 on rank 0");
  CHECK(fixture.weight() == before);
}

TEST_CASE("infinite gradients of a finite loss change no weight and name step and parameters") {
  StepFixture fixture(with_rate(0.1));
  fixture.stepper->set_steps(6);
  const at::Tensor loss = at::sqrt(fixture.model->forward(at::full({1, 1}, 2.0f))).sum();  // At its pole: 0.
  CHECK_THROWS_WITH(fixture.stepper->step(loss, control::kCheckpoint),
                    Catch::StartsWith("the loss is finite on every rank at step 7, but the gradients summed over the "
                                      "ranks are not, of parameter linear.weight, linear.bias: "));
  CHECK(fixture.stepper->last_loss() == 0);
  CHECK(fixture.weight() == 0);
  CHECK(fixture.stepper->steps() == 6);
}

TEST_CASE("what has no gradient is not updated: no weight decay, no momentum, no count") {
  job::Training training = with_rate(0.1);
  training.optimizer.momentum = 0.9;
  training.optimizer.weight_decay = 0.1;
  StepFixture fixture(training);
  (void)fixture.stepper->step(fixture.loss_at(1, 1), 0);
  (void)fixture.stepper->step(fixture.loss_at(1, 1), 0);
  const float before = fixture.weight();
  at::Tensor bias = fixture.model->named_parameters()["linear.bias"];
  const at::Tensor loss = (bias * bias).sum();
  const float bias_before = bias.item<float>();
  CHECK(fixture.stepper->step(loss, 0) == control::kUsedChanged);
  CHECK(fixture.weight() == before);
  CHECK(bias.item<float>() != bias_before);
  CHECK(fixture.stepper->parameter_steps() == std::vector<std::int64_t>{2, 3});
  CHECK(fixture.stepper->step(at::zeros({}), 0) == control::kUsedChanged);  // A loss without history.
  CHECK(fixture.stepper->step(at::zeros({}), 0) == 0);
  CHECK(fixture.stepper->parameter_steps() == std::vector<std::int64_t>{2, 3});
  CHECK(fixture.stepper->steps() == 5);
  CHECK(fixture.stepper->step(fixture.loss_at(1, 1), 0) == control::kUsedChanged);
  CHECK(fixture.weight() != before);
  CHECK_THROWS_WITH(fixture.stepper->set_parameter_steps({1, 2, 3}),
                    Catch::Contains("3 parameters, and the model has 2"));
}

TEST_CASE("gradients are clipped as by LibTorch's own functions") {
  for (const bool by_norm : {true, false}) {
    job::Training training = with_rate(0.1);
    (by_norm ? training.clip_norm : training.clip_value) = 1.5;
    StepFixture ours(training);
    const auto theirs = make_model({{"type", "linear"}, {"init", "zeros"}}, {{1}, 1});
    for (int i = 0; i < 5; ++i) {
      (void)ours.stepper->step(ours.loss_at(2, 3), 0);
      theirs->zero_grad();
      at::mse_loss(theirs->forward(at::full({1, 1}, 2.0f)), at::full({1, 1}, 3.0f)).backward();
      if (by_norm)
        torch::nn::utils::clip_grad_norm_(theirs->parameters(), 1.5);
      else
        torch::nn::utils::clip_grad_value_(theirs->parameters(), 1.5);
      const at::NoGradGuard no_gradients;
      for (at::Tensor& one : theirs->parameters()) one -= 0.1 * one.grad();
    }
    CHECK(ours.weight() != 0);
    CHECK(ours.weight() == Approx(theirs->named_parameters()["linear.weight"].item<float>()).epsilon(1e-6));
  }
}

TEST_CASE("the scheduler counts batches or epochs") {
  job::Training training = with_rate(1);
  training.scheduler = job::Scheduler{"batch", {{{"type", "step"}, {"step_size", 2}, {"gamma", 0.1}}}};
  StepFixture batches(training);
  batches.stepper->set_steps(5);
  CHECK(batches.stepper->learning_rate() == Approx(0.01));
  training.scheduler->frequency = "epoch";
  StepFixture epochs(training);
  epochs.stepper->set_steps(5);
  CHECK(epochs.stepper->learning_rate() == Approx(1));
  epochs.stepper->set_epochs_completed(2);
  CHECK(epochs.stepper->learning_rate() == Approx(0.1));
  CHECK(epochs.stepper->scheduler_count() == 2);
  CHECK_THROWS_WITH(epochs.stepper->step_scheduler(),
                    "step_scheduler() needs a scheduler with \"frequency\": \"manual\" in the job");
}

TEST_CASE("the scheduler counts the user's calls, and its state goes on counting") {
  job::Training training = with_rate(1);
  training.scheduler = job::Scheduler{"manual", {{{"type", "exponential"}, {"gamma", 0.5}}}};
  StepFixture before(training);
  before.stepper->set_steps(7);
  before.stepper->set_epochs_completed(3);
  CHECK(before.stepper->learning_rate() == 1);
  before.stepper->step_scheduler();
  before.stepper->step_scheduler();
  CHECK(before.stepper->learning_rate() == 0.25);
  StepFixture after(training);
  after.stepper->load_scheduler_state(before.stepper->scheduler_state());
  after.stepper->set_steps(7);
  CHECK(after.stepper->learning_rate() == 0.25);
  after.stepper->step_scheduler();
  CHECK(after.stepper->learning_rate() == 0.125);
  StepFixture counted(training);  // A checkpoint's state has held nothing else before.
  counted.stepper->load_scheduler_state({{"count", 3}});
  CHECK(counted.stepper->learning_rate() == 0.125);
  CHECK_THROWS_WITH(counted.stepper->load_scheduler_state({{"count", -3}}),
                    "scheduler state: count is missing or not a count");
}

TEST_CASE("a scheduler that cycles momentum gives it to an optimizer that has none") {
  job::Training training = with_rate(1);
  StepFixture plain(training);
  CHECK(plain.stepper->optimizer().buffers().empty());
  const nlohmann::json cycle = {{"type", "one_cycle"},      {"max_lr", 0.5},        {"total_steps", 10},
                                {"pct_start", 0.3},         {"div_factor", 25},     {"final_div_factor", 1e4},
                                {"anneal_strategy", "cos"}, {"three_phase", false}, {"cycle_momentum", true},
                                {"base_momentum", 0.85},    {"max_momentum", 0.95}};
  training.scheduler = job::Scheduler{"batch", {cycle}};
  StepFixture cycled(training);
  REQUIRE(cycled.stepper->optimizer().buffers().size() == 1);
  CHECK(cycled.stepper->learning_rate() == Approx(0.02));
  for (int i = 0; i < 2; ++i) (void)cycled.stepper->step(cycled.loss_at(1, 1), 0);
  CHECK(cycled.stepper->learning_rate() == 0.5);
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
  CHECK(fixture.stepper->metric() == "val_loss");
  fixture.stepper->observe(1);
  CHECK(fixture.stepper->learning_rate() == 0.1);
  fixture.stepper->observe(2);
  CHECK(fixture.stepper->learning_rate() == 0.05);
}

}  // namespace sgd::worker
