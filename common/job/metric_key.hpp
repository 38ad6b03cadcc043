#pragma once
// What the entries of "training.metrics" are called in reports, and what they measure: known to the launcher, which
// refuses two of one name and those that do not fit the data, and to the worker, which measures.

#include <cstdint>
#include <string>

#include "common/json/nlohmann.hpp"

namespace sgd::job {

/// Classes of a confusion matrix, which counts in a table of their square: 128 MiB.
inline constexpr std::int64_t kConfusionClassesMax = 4096;

/// Without "val_" or "train_": "accuracy", "top_5", "f1_micro". `settings` has its defaults or not.
[[nodiscard]] std::string metric_key(const nlohmann::json& settings);

/// Whether it measures classes; else numbers.
[[nodiscard]] bool measures_classes(const std::string& type);

}  // namespace sgd::job
