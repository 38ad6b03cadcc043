// The defaults of TrainingOperator: what RaySGD does for an operator that overrides nothing.
#include "sgd/training_operator.hpp"

#include <stdexcept>

namespace sgd {
namespace {

double accuracy_of(const at::Tensor& output, const at::Tensor& target) {
  if (output.dim() != 2 || output.size(1) < 2 || !at::isIntegralType(target.scalar_type(), false)) return 0;
  const double correct = output.argmax(1).eq(target).sum().item<double>();
  return correct / static_cast<double>(target.size(0));
}

}  // namespace

void TrainingOperator::setup() {
  register_model(host_->make_model());
  register_loss(host_->make_loss());
}

at::Tensor TrainingOperator::forward(const at::Tensor& features) {
  if (!forward_)
    throw std::logic_error(
        "the registered model has no forward(features): override train_batch() and validate_batch()");
  return forward_(features);
}

nlohmann::json TrainingOperator::train_epoch(BatchStream& batches) {
  model_->train();
  while (std::optional<Batch> batch = batches.next()) batches.add(train_batch(*batch, batches.info()));
  return nlohmann::json::object();
}

BatchMetrics TrainingOperator::train_batch(const Batch& batch, const BatchInfo& info) {
  (void)info;
  const at::Tensor loss = loss_(forward(batch.features), batch.target);
  step(loss);
  return {batch.features.size(0), {{"train_loss", loss.item<double>()}}};
}

nlohmann::json TrainingOperator::validate(BatchStream& batches) {
  model_->eval();
  const at::NoGradGuard no_gradients;  // Not InferenceMode: what a model keeps from here may be used in training.
  while (std::optional<Batch> batch = batches.next()) batches.add(validate_batch(*batch, batches.info()));
  return nlohmann::json::object();
}

BatchMetrics TrainingOperator::validate_batch(const Batch& batch, const BatchInfo& info) {
  (void)info;
  const at::Tensor output = forward(batch.features);
  const double loss = loss_(output, batch.target).item<double>();
  return {batch.features.size(0), {{"val_loss", loss}, {"val_accuracy", accuracy_of(output, batch.target)}}};
}

}  // namespace sgd
