#pragma once
// A data set that a plug-in has registered, as this worker's loop takes it: what it gives is checked, so that an error
// names the data set and not an operation in the model.

#include <memory>
#include <optional>
#include <string>

#include "sgd/data.hpp"
#include "worker/torch/datasets.hpp"

namespace sgd::worker {

/// The registered one with that dataset["type"]; null: there is none. Throws what its making throws, and where the part
/// of it that is used has no samples: of both parts, the one to validate on need have none. A stream is made anew for
/// each rank that opens it.
[[nodiscard]] std::shared_ptr<Dataset> make_own_dataset(const DatasetSettings& settings);

/// As the public headers call it.
[[nodiscard]] sgd::Split public_split(Split split);

/// `made` under `name`, which errors say. `part`: the only one that is used; nothing: both.
[[nodiscard]] std::shared_ptr<Dataset> as_dataset(std::string name, std::shared_ptr<const sgd::Dataset> made,
                                                  std::optional<Split> part = std::nullopt);

}  // namespace sgd::worker
