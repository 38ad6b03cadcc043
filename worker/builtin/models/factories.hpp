#pragma once
// One factory for each family of models. Settings are those of the job file, complete; a missing one has the default
// of configs/job.schema.json.

#include <cstdint>
#include <memory>
#include <string>

#include "sgd/registry.hpp"

namespace sgd::builtin {

/// Features n x channels x rows x columns, at least 16 x 16 pixels; gives n x outputs.
[[nodiscard]] std::shared_ptr<Model> make_lenet(const nlohmann::json& settings, const SampleShape& sample);

/// "resnet18", "resnet34" or "resnet50". Features n x channels x rows x columns; gives n x outputs.
[[nodiscard]] std::shared_ptr<Model> make_resnet(const nlohmann::json& settings, const SampleShape& sample);

/// Features n x channels x rows x columns; gives n x outputs x rows x columns.
[[nodiscard]] std::shared_ptr<Model> make_fcn(const nlohmann::json& settings, const SampleShape& sample);

/// Features n x length, tokens from 0 to below "vocabulary"; gives n x vocabulary x length, or n x outputs.
[[nodiscard]] std::shared_ptr<Model> make_transformer(const nlohmann::json& settings, const SampleShape& sample);

/// Whatever the file takes and gives.
[[nodiscard]] std::shared_ptr<Model> make_torchscript(const nlohmann::json& settings, const SampleShape& sample);

/// Channels of the images in `sample`. Throws std::invalid_argument for other samples, and for images smaller than
/// `side_min` pixels in a direction.
[[nodiscard]] std::int64_t image_channels(const std::string& model, const SampleShape& sample, std::int64_t side_min);

}  // namespace sgd::builtin
