#pragma once
// The built-in models and losses, by name: those of worker/builtin, and three with kernels of their own. Parameter
// names and shapes are those of the same model written in PyTorch, so checkpoints open there.

#include <functional>
#include <memory>
#include <string>

#include "common/json/nlohmann.hpp"
#include "sgd/training_operator.hpp"
#include "worker/builtin/losses.hpp"
#include "worker/torch/datasets.hpp"
#include "worker/torch/registry.hpp"

namespace sgd::worker {

[[nodiscard]] Registry<ModelFactory>& model_registry();
/// By settings["type"], of the built-in ones and those that plug-ins have registered, with the values that "init" and
/// "weights" say, else PyTorch's default initialisation. Throws ConfigurationError for what does not fit.
[[nodiscard]] std::shared_ptr<Model> make_model(const nlohmann::json& settings, const SampleShape& sample);

[[nodiscard]] Registry<builtin::LossFactory>& loss_registry();
/// From "training.loss": {"type": ..., options}, or a name alone.
[[nodiscard]] Loss make_loss(const nlohmann::json& settings);

/// Two 3x3 convolutions, max-pool 2, a hidden layer, outputs. As it stands 32, 64, 128, 10: the network of PyTorch's
/// MNIST example without dropout.
[[nodiscard]] std::shared_ptr<Model> make_cnn(const nlohmann::json& settings, const SampleShape& sample);

}  // namespace sgd::worker
