// One optimizer step on one rank.
#include <catch2/catch.hpp>

#include "step_fixture.hpp"

namespace sgd::worker {

TEST_CASE("a step follows the gradient and returns the control word") {
  StepFixture fixture(with_rate(0.1));
  const at::Tensor loss = fixture.loss_at(2, 3);
  CHECK(fixture.step(loss, control::kCheckpoint) == control::kCheckpoint);
  CHECK(fixture.weight() == Approx(0.1 * 2 * 3 * 2));  // -lr * d/dw (w x + b - y)^2 at w = b = 0.
  CHECK(fixture.stepper->steps() == 1);
  CHECK(fixture.stepper->last_loss() == 9);
}

TEST_CASE("gradients do not add up over steps, whatever the user's code does to them") {
  StepFixture plain(with_rate(0.1));
  StepFixture dropped(with_rate(0.1));
  for (int i = 0; i < 3; ++i) {
    (void)plain.step(plain.loss_at(1, 1), 0);
    dropped.model->zero_grad();  // Drops the views.
    (void)dropped.step(dropped.loss_at(1, 1), 0);
  }
  CHECK(plain.weight() == dropped.weight());
}

TEST_CASE("a loss that is not finite changes no weight and names step and rank") {
  StepFixture fixture(with_rate(0.1));
  (void)fixture.step(fixture.loss_at(1, 1), 0);
  const float before = fixture.weight();
  CHECK_THROWS_WITH(fixture.step(fixture.loss_at(1, NAN), 0),
                    "the loss is not finite at step 2 on rank 0: lower the learning rate (0.1), or check the data and "
                    "the loss");
  CHECK(fixture.weight() == before);
}

TEST_CASE("infinite gradients of a finite loss change no weight and name step and parameters") {
  StepFixture fixture(with_rate(0.1));
  fixture.go_on_from(6);
  const at::Tensor loss = at::sqrt(fixture.model->forward(at::full({1, 1}, 2.0f))).sum();  // At its pole: 0.
  CHECK_THROWS_WITH(fixture.step(loss, control::kCheckpoint),
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
  (void)fixture.step(fixture.loss_at(1, 1), 0);
  (void)fixture.step(fixture.loss_at(1, 1), 0);
  const float before = fixture.weight();
  at::Tensor bias = fixture.model->named_parameters()["linear.bias"];
  const at::Tensor loss = (bias * bias).sum();
  const float bias_before = bias.item<float>();
  CHECK(fixture.step(loss, 0) == control::kUsedChanged);
  CHECK(fixture.weight() == before);
  CHECK(bias.item<float>() != bias_before);
  CHECK(fixture.part().parameter_steps() == std::vector<std::int64_t>{2, 3});
  CHECK(fixture.step(at::zeros({}), 0) == control::kUsedChanged);  // A loss without history.
  CHECK(fixture.step(at::zeros({}), 0) == 0);
  CHECK(fixture.part().parameter_steps() == std::vector<std::int64_t>{2, 3});
  CHECK(fixture.stepper->steps() == 5);
  CHECK(fixture.step(fixture.loss_at(1, 1), 0) == control::kUsedChanged);
  CHECK(fixture.weight() != before);
  OptimizerRecord record = fixture.part().record();
  record.parameter_steps = {1, 2, 3};
  CHECK_THROWS_WITH(fixture.stepper->load({record}, 6),
                    Catch::Contains("3 parameters of optimizer \"optimizer\", and it has 2"));
}

TEST_CASE("gradients are clipped as by LibTorch's own functions") {
  for (const bool by_norm : {true, false}) {
    job::Training training = with_rate(0.1);
    (by_norm ? training.clip_norm : training.clip_value) = 1.5;
    StepFixture ours(training);
    const auto theirs = make_model({{"type", "linear"}, {"init", "zeros"}}, {{1}, 1});
    for (int i = 0; i < 5; ++i) {
      (void)ours.step(ours.loss_at(2, 3), 0);
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

TEST_CASE("options that the user changes count at once, and come back") {
  StepFixture before(with_rate(0.1));
  const auto options = [](StepFixture& fixture) -> torch::optim::SGDOptions& {
    auto& groups = const_cast<PreparedOptimizer&>(fixture.part().optimizer()).param_groups();
    return static_cast<torch::optim::SGDOptions&>(groups.front().options());
  };
  options(before).lr(0.5).weight_decay(0.25);
  (void)before.step(before.loss_at(2, 3), 0);
  CHECK(before.weight() == Approx(0.5 * 2 * 3 * 2));
  StepFixture after(with_rate(0.1));
  after.stepper->load(before.stepper->records(), 1);
  CHECK(options(after).lr() == 0.5);
  CHECK(options(after).weight_decay() == 0.25);
  StepFixture changed(with_rate(0.2));  // The job says something else than before.
  changed.stepper->load(before.stepper->records(), 1);
  CHECK(options(changed).lr() == 0.2);
  CHECK(options(changed).weight_decay() == 0);
  options(after).momentum(0.9);
  after.stepper->backward(after.loss_at(1, 1));
  CHECK_THROWS_WITH(after.stepper->update(after.part(), 0), Catch::Contains("was switched on or off since setup()"));
}

TEST_CASE("updates that are not finite can be left out") {
  job::Training training = with_rate(0.1);
  training.on_nan = "skip";
  StepFixture fixture(training);
  (void)fixture.step(fixture.loss_at(2, 3), 0);
  const float before = fixture.weight();
  CHECK((fixture.step(fixture.loss_at(1, NAN), 0) & control::kNan) != 0);
  const at::Tensor pole = at::sqrt(fixture.model->forward(at::full({1, 1}, 2.0f)) * 0).sum();
  (void)fixture.step(pole, 0);
  CHECK(fixture.weight() == before);
  CHECK(fixture.stepper->steps() == 3);
  CHECK(fixture.part().parameter_steps() == std::vector<std::int64_t>{1, 1});
  CHECK(fixture.stepper->take_skipped() == 2);
  (void)fixture.step(fixture.loss_at(1, 5), 0);
  CHECK(fixture.weight() != before);
}

TEST_CASE("with rollback a step that is not finite tells what was, and counts go back with the tensors") {
  job::Training training = with_rate(0.1);
  training.on_nan = "rollback";
  StepFixture fixture(training);
  (void)fixture.step(fixture.loss_at(2, 3), 0);
  const std::vector<OptimizerRecord> kept = fixture.stepper->records();
  (void)fixture.step(fixture.loss_at(1, 1), 0);
  CHECK(fixture.stepper->take_fault().empty());
  const float before = fixture.weight();
  (void)fixture.step(fixture.loss_at(1, NAN), 0);
  CHECK(fixture.weight() == before);
  CHECK_THAT(fixture.stepper->take_fault(), Catch::StartsWith("the loss is not finite at step 3 on rank 0: lower"));
  CHECK(fixture.stepper->take_fault().empty());
  fixture.stepper->backward(fixture.loss_at(1, 1));
  fixture.stepper->roll_back(kept);
  CHECK_FALSE(fixture.stepper->is_pending());
  CHECK(fixture.part().parameter_steps() == std::vector<std::int64_t>{1, 1});
  CHECK(fixture.stepper->steps() == 3);
  CHECK(fixture.stepper->take_skipped() == 1);
}

TEST_CASE("scaled losses make the same updates, and infinite gradients of a scaled loss lower the scale") {
  job::Training training = with_rate(0.1);
  StepFixture plain(training);
  training.precision = "fp16";
  StepFixture scaled(training);
  for (auto* fixture : {&plain, &scaled}) (void)fixture->step(fixture->loss_at(2, 3), 0);
  CHECK(scaled.weight() == plain.weight());
  CHECK(scaled.stepper->last_loss() == plain.stepper->last_loss());
  const double before = scaled.stepper->loss_scale().at("value");
  const float weight = scaled.weight();
  (void)scaled.step(scaled.model->forward(at::ones({1, 1})).sum() * 1e34, 0);  // Infinite only when scaled.
  CHECK(scaled.weight() == weight);
  CHECK(scaled.stepper->loss_scale().at("value") == before / 2);
  CHECK(scaled.stepper->take_skipped() == 1);
  CHECK_THROWS_WITH(scaled.step(scaled.loss_at(1, NAN), 0), Catch::StartsWith("the loss is not finite at step 3"));
}

TEST_CASE("with scaled losses a backward pass of the user's own is refused") {
  job::Training training = with_rate(0.1);
  StepFixture plain(training);
  plain.loss_at(2, 3).backward();  // As the stepper's.
  (void)plain.stepper->update(plain.part(), 0);
  CHECK(plain.weight() != 0);
  training.precision = "fp16";
  StepFixture scaled(training);
  CHECK_THROWS_WITH(scaled.loss_at(2, 3).backward(), Catch::Contains("call step.backward(loss)"));
  scaled.stepper->backward(scaled.loss_at(2, 3));
}

TEST_CASE("an optimizer may have parameters without elements, and no others") {
  for (const bool has_others : {true, false}) {
    for (const char* type : {"sgd", "adam"}) {
      const at::Tensor empty = at::zeros({0, 3}).requires_grad_();
      const at::Tensor weight = at::zeros({2}).requires_grad_();
      const std::vector<at::Tensor> tensors = has_others ? std::vector{empty, weight} : std::vector{empty};
      const std::vector<TrainedParameter> trained =
          has_others ? std::vector<TrainedParameter>{{"empty", empty}, {"weight", weight}}
                     : std::vector<TrainedParameter>{{"empty", empty}};
      job::Training training = with_rate(0.1);
      training.optimizer.type = type;
      FlatParameters parameters(trained);
      CollectiveSetup setup;
      setup.gradient_count = std::max<std::size_t>(parameters.size(), 16);
      const std::unique_ptr<Collective> collective = make_collective(setup);
      Stepper stepper(parameters, *collective, {registered("optimizer", training, tensors)}, GradientClip{1, {}});
      stepper.backward(has_others ? (weight.sum() + empty.sum()) : empty.sum());
      CHECK((stepper.update(*stepper.parts().front(), 0) & control::kInfinite) == 0);
      stepper.end_batch();
      CHECK(stepper.steps() == 1);
      CHECK(stepper.records().front().steps == 1);
      if (has_others) CHECK(weight[0].item<float>() < 0);
    }
  }
}

/// Two layers, an optimizer for each, beside the same in plain LibTorch.
struct TwoOptimizers {
  TwoOptimizers() {
    at::manual_seed(3);
    for (auto* layer : {&first, &second}) *layer = torch::nn::Linear(4, 4);
    std::vector<TrainedParameter> trained;
    std::vector<RegisteredOptimizer> optimizers;
    job::Training training = with_rate(0.1);
    training.optimizer.momentum = 0.9;
    for (auto& [name, layer] : {std::pair("first", first), std::pair("second", second)}) {
      optimizers.push_back(registered(name, training, layer->parameters()));
      optimizers.back().first = trained.size();
      for (const auto& item : layer->named_parameters())
        trained.push_back({std::string(name) + "." + item.key(), item.value()});
      training.optimizer.lr = 0.01;
    }
    parameters = std::make_unique<FlatParameters>(std::move(trained));
    CollectiveSetup setup;
    setup.gradient_count = parameters->size();
    collective = make_collective(setup);
    stepper = std::make_unique<Stepper>(*parameters, *collective, optimizers, GradientClip{});
  }
  OptimizerPart& part(std::size_t index) { return *stepper->parts()[index]; }

  torch::nn::Linear first{nullptr}, second{nullptr};
  std::unique_ptr<FlatParameters> parameters;
  std::unique_ptr<Collective> collective;
  std::unique_ptr<Stepper> stepper;
};

TEST_CASE("two optimizers move their own parameters, as in plain LibTorch") {
  TwoOptimizers ours;
  const auto first = std::dynamic_pointer_cast<torch::nn::LinearImpl>(ours.first->clone());
  const auto second = std::dynamic_pointer_cast<torch::nn::LinearImpl>(ours.second->clone());
  torch::optim::SGD first_optimizer(first->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::optim::SGD second_optimizer(second->parameters(), torch::optim::SGDOptions(0.01).momentum(0.9));
  const auto losses = [](auto& a, auto& b, const at::Tensor& input) {
    return std::pair((a->forward(input) - 1).square().mean(), b->forward(a->forward(input)).square().mean());
  };
  for (int i = 0; i < 5; ++i) {
    const at::Tensor input = at::randn({3, 4});
    {
      // The second loss reaches both; only its own parameters move, and nothing of it is left for the next batch.
      ours.stepper->backward(losses(ours.first, ours.second, input).first);
      (void)ours.stepper->update(ours.part(0), 0);
      const at::Tensor loss = losses(ours.first, ours.second, input).second;
      ours.stepper->backward(loss, i % 2 == 0 ? nullptr : &ours.part(1));
      CHECK(ours.parameters->has_gradients(ours.part(0).range()) == (i % 2 == 0));
      (void)ours.stepper->update(ours.part(1), 0);
      CHECK(ours.stepper->all_updated());
      ours.stepper->end_batch();
      CHECK_FALSE(ours.parameters->has_gradients(ours.parameters->all()));
    }
    first_optimizer.zero_grad();
    losses(first, second, input).first.backward();
    first_optimizer.step();
    second_optimizer.zero_grad();
    losses(first, second, input).second.backward();
    second_optimizer.step();
  }
  CHECK(ours.stepper->steps() == 5);
  CHECK(at::allclose(ours.first->weight, first->weight, 1e-6, 1e-7));
  CHECK(at::allclose(ours.second->weight, second->weight, 1e-6, 1e-7));
  CHECK(at::allclose(ours.second->bias, second->bias, 1e-6, 1e-7));
}

TEST_CASE("gradients that no update has taken stay for the next batch, and are pending") {
  TwoOptimizers ours;
  const at::Tensor input = at::ones({2, 4});
  const auto batch = [&](bool updates_second) {
    ours.stepper->backward(ours.second->forward(ours.first->forward(input)).sum());
    (void)ours.stepper->update(ours.part(0), 0);
    if (updates_second) (void)ours.stepper->update(ours.part(1), 0);
  };
  batch(false);
  CHECK_FALSE(ours.stepper->all_updated());
  CHECK(ours.stepper->is_updated());
  CHECK(ours.stepper->is_pending());
  ours.stepper->end_batch();
  const at::Tensor once = ours.second->bias.grad().clone();
  batch(true);
  CHECK_FALSE(ours.stepper->is_pending());
  ours.stepper->end_batch();
  const auto gradients = ours.collective->gradients().subspan(ours.parameters->places()[3].offset, 4);
  CHECK(gradients[0] == 2 * once[0].item<float>());
  batch(false);
  ours.stepper->end_batch();
  CHECK(ours.stepper->drop_pending() == "\"second\"");
  CHECK(ours.stepper->drop_pending().empty());
  CHECK(ours.part(0).record().batches == 3);
  CHECK(ours.part(1).record().batches == 1);
}

TEST_CASE("what is meant must be registered, and named where there are several") {
  TwoOptimizers ours;
  torch::optim::SGD other(ours.first->parameters(), 0.1);
  CHECK_THROWS_WITH(ours.stepper->part_of(other), Catch::Contains("not registered"));
  CHECK(&ours.stepper->part_of(ours.part(1).optimizer()) == &ours.part(1));
  CHECK_THROWS_WITH(ours.stepper->only_part("minimize()"),
                    Catch::StartsWith("minimize() is for one optimizer, and there are 2"));
  CHECK_THROWS_WITH(ours.stepper->load({ours.part(0).record()}, 1),
                    Catch::Contains("\"first\" (sgd), the job has \"first\" (sgd), \"second\" (sgd)"));
}

}  // namespace sgd::worker
