#pragma once
// What the default validate_batch() calls accuracy.

#include <ATen/core/Tensor.h>

namespace sgd::worker {

/// Share of the targets that have the largest output: of samples, or of their pixels or tokens where the outputs are
/// n x classes x more and the targets n x more. Negative targets count for nothing. 0 where
/// there are no classes.
[[nodiscard]] double accuracy_of(const at::Tensor& output, const at::Tensor& target);

}  // namespace sgd::worker
