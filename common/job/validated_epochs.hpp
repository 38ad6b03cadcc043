#pragma once
// Which epochs of a training are validated. Pure.

#include <algorithm>

#include "common/job/spec.hpp"

namespace sgd::job {

/// Each "validate_every"-th, and the last.
[[nodiscard]] inline bool is_validated(const Training& training, int epoch) {
  return epoch % training.validate_every == 0 || epoch >= training.epochs;
}

/// The first behind `epoch`.
[[nodiscard]] inline int next_validated(const Training& training, int epoch) {
  if (epoch >= training.epochs) return epoch + 1;
  return std::min((epoch / training.validate_every + 1) * training.validate_every, training.epochs);
}

}  // namespace sgd::job
