#pragma once
// The built-in models and losses, by name. Parameter names and shapes are those of the same model
// written in PyTorch, so checkpoints open there.

#include <functional>
#include <memory>
#include <string>

#include "common/json/nlohmann.hpp"
#include "sgd/training_operator.hpp"
#include "worker/torch/datasets.hpp"
#include "worker/torch/registry.hpp"

namespace sgd::worker {

[[nodiscard]] Registry<ModelFactory>& model_registry();
/// By settings["type"], of the built-in ones and those that plug-ins have registered; "init": "zeros" sets every
/// parameter to 0, else PyTorch's default initialisation.
[[nodiscard]] std::shared_ptr<Model> make_model(const nlohmann::json& settings, const SampleShape& sample);

using LossFactory = std::function<Loss()>;
[[nodiscard]] Registry<LossFactory>& loss_registry();
[[nodiscard]] Loss make_loss(const std::string& name);

/// Two 3x3 convolutions, max-pool 2, a hidden layer, outputs. As it stands 32, 64, 128, 10: the network of PyTorch's
/// MNIST example without dropout.
[[nodiscard]] std::shared_ptr<Model> make_cnn(const nlohmann::json& settings, const SampleShape& sample);

}  // namespace sgd::worker
