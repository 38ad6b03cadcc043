#pragma once
// Outputs and targets of numbers as doubles: a row for each sample, a column for each number of a sample.

#include "sgd/metrics.hpp"

namespace sgd::worker {

struct NumberColumns {
  at::Tensor output;  ///< [N, D], double, on the CPU, contiguous.
  at::Tensor target;  ///< The same.
};

/// Both of N samples and of as many numbers; [N, 1] and [N] fit. `metric` names who asks, in std::invalid_argument.
[[nodiscard]] NumberColumns number_columns(const char* metric, const at::Tensor& output, const at::Tensor& target);

}  // namespace sgd::worker
