// The defaults of TrainingOperator: what RaySGD does for an operator that overrides nothing.
#include "sgd/training_operator.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "worker/torch/accuracy.hpp"

namespace sgd {

void TrainingOperator::setup(Setup& setup) {
  (void)setup.model("model", setup.job_model());
}

at::Tensor TrainingOperator::forward(const Batch& batch) {
  const RegisteredModel& first = host_->models().front();
  if (!first.forward)
    throw std::logic_error("the registered model \"" + first.name +
                           "\" has no forward of one to three tensors: override train_batch() and validate_batch()");
  std::vector<at::Tensor> inputs = {batch.features};
  inputs.insert(inputs.end(), batch.further.begin(), batch.further.end());
  if (inputs.size() != first.inputs)
    throw std::logic_error("the registered model \"" + first.name + "\" takes " + std::to_string(first.inputs) +
                           " tensors, and a batch of the data set has " + std::to_string(inputs.size()) +
                           " beside the target");
  return first.forward(inputs);
}

void TrainingOperator::set_training(bool is_training) {
  for (const RegisteredModel& model : host_->models()) model.module->train(is_training);
}

nlohmann::json TrainingOperator::train_epoch(BatchStream& batches) {
  set_training(true);
  while (std::optional<Batch> batch = batches.next()) batches.add(train_batch(*batch, *batches.step()));
  return nlohmann::json::object();
}

BatchMetrics TrainingOperator::train_batch(const Batch& batch, Step& step) {
  const at::Tensor output = forward(batch);
  const at::Tensor loss = this->loss()(output, batch.target);
  step.minimize(loss);
  measure(output, batch.target);
  return {batch.features.size(0), {{"train_loss", loss.item<double>()}}};
}

nlohmann::json TrainingOperator::validate(BatchStream& batches) {
  set_training(false);
  const at::NoGradGuard no_gradients;  // Not InferenceMode: what a model keeps from here may be used in training.
  while (std::optional<Batch> batch = batches.next()) batches.add(validate_batch(*batch, batches.info()));
  return nlohmann::json::object();
}

BatchMetrics TrainingOperator::validate_batch(const Batch& batch, const BatchInfo& info) {
  (void)info;
  const at::Tensor output = forward(batch);
  const double loss = this->loss()(output, batch.target).item<double>();
  measure(output, batch.target);
  const std::int64_t ignored = worker::ignored_class(training().value("loss", nlohmann::json()));
  return {batch.features.size(0),
          {{"val_loss", loss}, {"val_accuracy", worker::accuracy_of(output, batch.target, ignored)}}};
}

}  // namespace sgd
