#pragma once
// Whether a built-in model can take the samples of a data set, and how large it is: known before anything starts. Pure.
// The worker makes the models (worker/torch/models.cpp) and has the last word.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/job/spec.hpp"

namespace sgd::job {

/// Sizes of one sample: {channels, rows, columns} of an image, {numbers}.
using SampleSizes = std::vector<std::int64_t>;

struct Misfit {
  std::string path;  ///< The key that is to be changed: "training.model.inputs".
  std::string message;
};

/// `model` is "training.model", complete. `has_classes`: what is learnt are classes, and not `numbers` of them.
[[nodiscard]] std::optional<Misfit> model_misfit(const nlohmann::json& model, const SampleSizes& sample,
                                                 bool has_classes, std::int64_t numbers = 1);

/// Of a model that fits; as a number that cannot overflow.
[[nodiscard]] double parameter_count(const nlohmann::json& model, const SampleSizes& sample);

/// What training takes at least when all workers are on one machine: weights, gradients and the optimizer's buffers of
/// each, and the copies of the state that a node keeps.
[[nodiscard]] double bytes_needed(const JobSpec& job, const SampleSizes& sample);

}  // namespace sgd::job
