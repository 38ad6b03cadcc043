#pragma once
// A data set that a plug-in has registered, as this worker's loop takes it: what it gives is checked, so that an error
// names the data set and not an operation in the model.

#include <memory>
#include <string>

#include "sgd/data.hpp"
#include "worker/torch/datasets.hpp"

namespace sgd::worker {

/// The registered one with that dataset["type"]; null: there is none. Throws what its making throws, and where it has
/// no samples. A stream is made anew for each rank that opens it.
[[nodiscard]] std::shared_ptr<Dataset> make_own_dataset(const DatasetSettings& settings);

/// As the public headers call it.
[[nodiscard]] sgd::Split public_split(Split split);

/// `made` under `name`, which errors say.
[[nodiscard]] std::shared_ptr<Dataset> as_dataset(std::string name, std::shared_ptr<const sgd::Dataset> made);

}  // namespace sgd::worker
