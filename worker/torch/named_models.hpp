#pragma once
// The registered modules with the names that their tensors have in checkpoints.

#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "sgd/setup.hpp"

namespace sgd::worker {

struct NamedModel {
  std::string prefix;  ///< "generator.", or nothing where there is one model.
  std::shared_ptr<torch::nn::Module> module;
};
using NamedModels = std::vector<NamedModel>;

[[nodiscard]] inline NamedModels named(const std::vector<RegisteredModel>& models) {
  NamedModels all;
  for (const RegisteredModel& model : models) all.push_back({models.size() == 1 ? "" : model.name + ".", model.module});
  return all;
}

/// All parameters under their full names, in the order of registration; one that is shared comes once for each name.
[[nodiscard]] inline std::vector<std::pair<std::string, at::Tensor>> named_parameters(const NamedModels& models) {
  std::vector<std::pair<std::string, at::Tensor>> all;
  for (const NamedModel& model : models)
    for (const auto& item : model.module->named_parameters()) all.emplace_back(model.prefix + item.key(), item.value());
  return all;
}

}  // namespace sgd::worker
