#pragma once
// Data sets by name: from sample numbers to tensors. The data itself lives in worker/core, in
// memory or mapped; a batch is a gather into fresh tensors. Read-only after make_dataset(), so
// the fork server opens a data set once and its children share it.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/job/spec.hpp"
#include "common/json/nlohmann.hpp"
#include "sgd/registry.hpp"
#include "sgd/training_operator.hpp"
#include "worker/core/idx_dataset.hpp"
#include "worker/torch/registry.hpp"

namespace sgd::worker {

class Dataset {
 public:
  virtual ~Dataset() = default;
  [[nodiscard]] virtual SampleShape shape() const = 0;
  [[nodiscard]] virtual std::int64_t count(Split split) const = 0;
  /// Throws on bad data, naming the sample.
  [[nodiscard]] virtual Batch gather(Split split, std::span<const std::int64_t> indices) const = 0;
};

/// `outputs` is the number of values that the model gives for a sample: labels must be below it; 0: it is not said, and
/// as many as the training labels need.
using DatasetFactory =
    std::function<std::shared_ptr<const Dataset>(const nlohmann::json& settings, std::int64_t outputs)>;
[[nodiscard]] Registry<DatasetFactory>& dataset_registry();

/// The data set of a job, by dataset["type"].
[[nodiscard]] std::shared_ptr<const Dataset> make_dataset(const job::Training& training);

}  // namespace sgd::worker
