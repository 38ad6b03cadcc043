#pragma once
// Whether a built-in model can take the samples of a data set, and how large it is: known before anything starts. Pure.
// The worker makes the models (worker/torch/models.cpp, worker/builtin) and has the last word.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/job/spec.hpp"

namespace sgd::job {

/// Sizes of one sample: {channels, rows, columns} of an image, {numbers}, {tokens}.
using SampleSizes = std::vector<std::int64_t>;

struct Misfit {
  std::string path;  ///< The key that is to be changed: "training.model.inputs".
  std::string message;
};

/// False for one of a plug-in's or a TorchScript file's, and where an operator makes its own: of those nothing is known
/// here.
[[nodiscard]] bool is_built_in_model(const nlohmann::json& model);

/// True for a transformer, whose samples are tokens; all other built-in models take numbers.
[[nodiscard]] bool takes_tokens(const nlohmann::json& model);

/// True for a segmentation, whose targets are a class for each pixel.
[[nodiscard]] bool gives_pixels(const nlohmann::json& model);

/// Classes, or numbers, that the model gives for a sample (of a segmentation, for each pixel; of a language model, for
/// each token): labels must be below. 0: it is not said.
[[nodiscard]] std::int64_t model_outputs(const nlohmann::json& model);

/// The first condition between keys of "training.model", complete, that does not hold.
[[nodiscard]] std::optional<Misfit> settings_misfit(const nlohmann::json& model);

/// `model` is "training.model", complete. `has_classes`: what is learnt are classes, and not `numbers` of them.
[[nodiscard]] std::optional<Misfit> model_misfit(const nlohmann::json& model, const SampleSizes& sample,
                                                 bool has_classes, std::int64_t numbers = 1);

/// Of a model that fits; as a number that cannot overflow. Tied weights count once.
[[nodiscard]] double parameter_count(const nlohmann::json& model, const SampleSizes& sample);

/// What training takes at least when all workers are on one machine: weights, gradients and the optimizer's buffers of
/// each, and the copies of the state that a node keeps.
[[nodiscard]] double bytes_needed(const JobSpec& job, const SampleSizes& sample);

}  // namespace sgd::job
