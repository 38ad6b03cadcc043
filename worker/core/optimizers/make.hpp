#pragma once
// The optimizers behind make_step_optimizer(), a file each. Their loops are PyTorch's formulas in float, and the
// numbers that are equal for all elements are computed in double before.

#include <algorithm>
#include <memory>
#include <vector>

#include "worker/core/step_optimizer.hpp"

namespace sgd::worker {

using OptimizerGroups = std::vector<job::Optimizer>;

[[nodiscard]] std::unique_ptr<StepOptimizer> make_sgd(const OptimizerGroups& groups, std::size_t count);
/// Adam and AdamW.
[[nodiscard]] std::unique_ptr<StepOptimizer> make_adam(const OptimizerGroups& groups, std::size_t count);
[[nodiscard]] std::unique_ptr<StepOptimizer> make_rmsprop(const OptimizerGroups& groups, std::size_t count);
[[nodiscard]] std::unique_ptr<StepOptimizer> make_adagrad(const OptimizerGroups& groups, std::size_t count);

/// Length of a state buffer that only those groups need that `needs` is true for.
template <class Needs>
[[nodiscard]] std::size_t count_if_needed(const OptimizerGroups& groups, std::size_t count, Needs needs) {
  return std::any_of(groups.begin(), groups.end(), needs) ? count : 0;
}

}  // namespace sgd::worker
