#pragma once
// Limits of gradients before an update, as torch.nn.utils.clip_grad_norm_ and clip_grad_value_. Sums are made in one
// fixed order, so that every rank, on whatever CPU, gets the same bits.

#include <span>

namespace sgd::worker {

/// Sum of the squares, in double.
[[nodiscard]] double sum_of_squares(std::span<const float> values);

/// What gradients of this norm are multiplied with: max_norm / (norm + 1e-6), at most 1.
[[nodiscard]] double clip_factor(double norm, double max_norm);

/// Every value times `scale`, and then into -limit .. limit.
void scale_and_clamp(std::span<float> values, float scale, float limit);

}  // namespace sgd::worker
