#pragma once
// LibTorch's optimizers and their options, as our settings, and back. The options are what the user sees and changes;
// our update is made with the settings.

#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "common/job/spec.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::worker {

/// "sgd", "adam", "adamw", "rmsprop" or "adagrad"; empty for any other class, also one derived from these.
[[nodiscard]] std::string optimizer_type_of(const torch::optim::Optimizer& optimizer);

/// `type` is the one that optimizer_type_of() has told of the optimizer with these options.
[[nodiscard]] job::Optimizer settings_of(const std::string& type, const torch::optim::OptimizerOptions& options);
/// The options become those of `settings`, of the same type.
void set_options(const job::Optimizer& settings, torch::optim::OptimizerOptions& options);

/// One group of all parameters.
[[nodiscard]] std::unique_ptr<torch::optim::Optimizer> make_torch_optimizer(const job::Optimizer& settings,
                                                                            std::vector<at::Tensor> parameters);

/// One more, of further parameters; the settings are of the type of `made`.
void add_group(const job::Optimizer& settings, std::vector<at::Tensor> parameters, torch::optim::Optimizer& made);

/// All numbers, those of other types too, by their names in a job file; they must be finite.
[[nodiscard]] nlohmann::json to_json(const job::Optimizer& settings);
/// What to_json() gave. Throws the JSON library's exceptions.
[[nodiscard]] job::Optimizer settings_from(const nlohmann::json& json);

}  // namespace sgd::worker
