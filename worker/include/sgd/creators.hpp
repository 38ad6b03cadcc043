#pragma once
// RaySGD's creators as an operator: functions that make the model, the optimizer, the loss and the scheduler from the
// operator's settings, with the default loops. The job names the data.
//
//   SGD_REGISTER_CREATORS("mine",
//                         sgd::operator_from_creators(
//                             [](const nlohmann::json& config) { return std::make_shared<Net>(config.at("hidden")); },
//                             [](Net& net, const nlohmann::json& config) {
//                               return torch::optim::SGD(net.parameters(), config.at("lr").get<double>());
//                             },
//                             [](const at::Tensor& output, const at::Tensor& target) { return at::mse_loss(output,
//                             target); },
//                             [](const nlohmann::json&) { return nlohmann::json{{"type", "step"}, {"step_size", 5}};
//                             }),
//                         R"({"hidden": {"type": "integer", "default": 64}, "lr": {"type": "number", "default":
//                         0.1}})");
//
// Any but the first may be sgd::by_job, or be left out from the right: then the job says it. Several models, or steps
// of one's own, are an operator's: see training_operator.hpp.

#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include "sgd/registry.hpp"
#include "sgd/training_operator.hpp"

namespace sgd {

/// In place of a creator: what the job names.
struct ByJob {};
inline constexpr ByJob by_job;

template <class ModelCreator, class OptimizerCreator = ByJob, class LossCreator = ByJob, class SchedulerCreator = ByJob>
class CreatorOperator : public TrainingOperator {
 public:
  CreatorOperator(ModelCreator make_model, OptimizerCreator make_optimizer, LossCreator make_loss,
                  SchedulerCreator make_scheduler)
      : model_(std::move(make_model)),
        optimizer_(std::move(make_optimizer)),
        loss_(std::move(make_loss)),
        scheduler_(std::move(make_scheduler)) {}

  void setup(Setup& setup) override {
    auto model = setup.model("model", model_(config()));
    if constexpr (!is_by_job<OptimizerCreator>) {
      const auto prepared = setup.optimizer("optimizer", optimizer_(*model, config()));
      if constexpr (!is_by_job<SchedulerCreator>) setup.scheduler(*prepared, scheduler_(config()));
    } else {
      static_assert(is_by_job<SchedulerCreator>, "a scheduler is for an optimizer that a creator makes");
    }
    if constexpr (std::is_invocable_r_v<at::Tensor, LossCreator&, const at::Tensor&, const at::Tensor&>)
      setup.loss(loss_);
    else if constexpr (!is_by_job<LossCreator>)
      setup.loss(loss_(config()));
  }

 private:
  template <class Creator>
  static constexpr bool is_by_job = std::is_same_v<Creator, ByJob>;

  ModelCreator model_;
  OptimizerCreator optimizer_;
  LossCreator loss_;
  SchedulerCreator scheduler_;
};

/// `model(config)`: a std::shared_ptr of a module whose forward takes one to three tensors, or a holder of LibTorch's.
/// `optimizer(model, config)`: one of LibTorch's, by value. `loss(output, target)`, or `loss(config)` that makes such a
/// function. `scheduler(config)`: its settings as a job file has them, or a list of them.
template <class ModelCreator, class OptimizerCreator = ByJob, class LossCreator = ByJob, class SchedulerCreator = ByJob>
[[nodiscard]] OperatorFactory operator_from_creators(ModelCreator model, OptimizerCreator optimizer = {},
                                                     LossCreator loss = {}, SchedulerCreator scheduler = {}) {
  using Operator = CreatorOperator<ModelCreator, OptimizerCreator, LossCreator, SchedulerCreator>;
  return [=]() -> std::unique_ptr<TrainingOperator> {
    return std::make_unique<Operator>(model, optimizer, loss, scheduler);
  };
}

}  // namespace sgd

/// The last argument describes the settings; see registry.hpp.
#define SGD_REGISTER_CREATORS(name, factory, properties) \
  SGD_REGISTRATION(name, properties, ::sgd::OperatorFactory(factory))
