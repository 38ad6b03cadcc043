#pragma once
// Built-in losses by the "type" that a job file gives them: PyTorch's, with their options. Each is the mean over a
// batch. Those of numbers take targets of as many numbers a sample as the outputs have, [N, 1] beside [N]; others are
// std::invalid_argument with both shapes.

#include <functional>
#include <map>
#include <string>

#include "sgd/training_operator.hpp"

namespace sgd::builtin {

/// From the settings of "training.loss"; a missing one has PyTorch's default.
using LossFactory = std::function<Loss(const nlohmann::json& settings)>;

[[nodiscard]] std::map<std::string, LossFactory> losses();

}  // namespace sgd::builtin
