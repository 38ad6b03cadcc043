#pragma once
// Outputs and targets of classes as plain rows, one for each target that counts, whatever further dimensions they had.
// What does not fit is an error in words here, so that no measurement looks at it again.

#include "sgd/metrics.hpp"

namespace sgd::worker {

struct ClassRows {
  at::Tensor output;         ///< [M, C].
  at::Tensor target;         ///< [M], int64, each from 0 to below `classes`.
  std::int64_t classes = 0;  ///< C; 2 where the model has one output.
};

/// `output` [N, C, d...], `target` [N, d...]. `metric` names who asks, in std::invalid_argument.
[[nodiscard]] ClassRows class_rows(const char* metric, const at::Tensor& output, const at::Tensor& target,
                                   const IgnoreIndex& ignore_index);

/// For what looks at the output of a target's class: throws likewise where a target has none, as class 1 of one output.
void check_own_outputs(const char* metric, const ClassRows& rows);

/// [M], int64: the predicted class of each row.
[[nodiscard]] at::Tensor predicted_classes(const ClassRows& rows);

/// How often each of 0 .. size - 1 stands in `numbers`.
void count_into(std::vector<std::int64_t>& counts, const at::Tensor& numbers);

}  // namespace sgd::worker
