#pragma once
// What a model begins with, beside what its own construction draws: "init" and "weights" of "training.model". Every
// rank does the same from the same seed and file.

#include <torch/torch.h>

#include "common/json/nlohmann.hpp"

namespace sgd::worker {

/// `init`: "default", "zeros" (every parameter), or how the weights of linear layers, convolutions and attention are
/// drawn, from LibTorch's default generator: "kaiming_normal", {"type": "normal", "std": 0.02} ...
void initialize(torch::nn::Module& model, const nlohmann::json& init);

/// `weights`: a safetensors file, or {"file", "partial", "prefix", "exclude"}. Copies its tensors into parameters and
/// buffers of the same names. Throws ConfigurationError that names file, tensor and expected shape.
void load_weights(torch::nn::Module& model, const nlohmann::json& weights);

}  // namespace sgd::worker
