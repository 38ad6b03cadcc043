#pragma once
// A model of one weight and one bias, trained by a stepper on one rank.

#include <memory>
#include <string>
#include <vector>

#include "worker/collective/factory.hpp"
#include "worker/torch/models.hpp"
#include "worker/torch/optimizer_options.hpp"
#include "worker/torch/stepper.hpp"

namespace sgd::worker {

/// As the job's optimizer.
inline RegisteredOptimizer registered(const std::string& name, const job::Training& training,
                                      const std::vector<at::Tensor>& of) {
  const auto made = make_torch_optimizer(training.optimizer, of);
  RegisteredOptimizer one;
  one.optimizer = std::make_shared<PreparedOptimizer>(name, training.optimizer.type, *made);
  one.schedule = training.scheduler;
  one.group_of.assign(of.size(), 0);
  return one;
}

struct StepFixture {
  explicit StepFixture(const job::Training& training = {})
      : model(make_model({{"type", "linear"}, {"init", "zeros"}}, {{1}, 1})),
        parameters(trainable_parameters({{"", model}})) {
    CollectiveSetup setup;
    setup.gradient_count = parameters.size();
    collective = make_collective(setup);
    stepper = std::make_unique<Stepper>(
        parameters, *collective,
        std::vector<RegisteredOptimizer>{registered("optimizer", training, model->parameters())},
        GradientClip{training.clip_norm, training.clip_value},
        StepRules{training.on_nan, training.precision == "fp16"});
  }
  OptimizerPart& part() { return *stepper->parts().front(); }
  /// A batch.
  std::uint32_t step(const at::Tensor& loss, std::uint32_t word) {
    stepper->backward(loss);
    const std::uint32_t agreed = stepper->update(part(), word);
    stepper->end_batch();
    return agreed;
  }
  /// As after a checkpoint.
  void go_on_from(std::int64_t steps) {
    OptimizerRecord record = part().record();
    record.batches = record.steps = steps;
    record.parameter_steps.clear();
    for (nlohmann::json& scheduler : record.schedulers) scheduler["count"] = steps;
    stepper->load({record}, steps);
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

inline job::Training with_rate(double lr) {
  job::Training training;
  training.optimizer.lr = lr;
  return training;
}

}  // namespace sgd::worker
