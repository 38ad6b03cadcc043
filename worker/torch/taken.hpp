#pragma once
// From what data sets without LibTorch say to what this folder throws, and what a data set must know of the model.

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <utility>

#include "common/base/result.hpp"
#include "worker/torch/datasets.hpp"

namespace sgd::worker {

template <class Value>
Value taken(Result<Value> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(result).value();
}

inline void check(const Status& status) {
  if (!status) throw std::runtime_error(status.error().message);
}

/// What labels must be below.
inline std::int64_t limit_of(const DatasetSettings& settings) {
  return settings.outputs > 0 ? settings.outputs : std::numeric_limits<std::int64_t>::max();
}

}  // namespace sgd::worker
