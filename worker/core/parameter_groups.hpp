#pragma once
// Which parameters of the flat buffer are updated with which settings, and how many updates each has had.
//
// A parameter that had no gradient in a step is left as it is, as in PyTorch: no weight decay, no momentum, no count.
// So each parameter has a count of its own, which is state. Neighbours whose update would be the same are updated as
// one: a model of one group whose parameters all have gradients is a single pass, with the same bits.

#include <cstdint>
#include <span>
#include <vector>

#include "worker/core/step_optimizer.hpp"

namespace sgd::worker {

struct GroupedParameter {
  FlatRange range;
  std::size_t group = 0;  ///< Index of its settings.
};

class ParameterGroups {
 public:
  /// In the buffer's order; ranges do not overlap.
  explicit ParameterGroups(std::vector<GroupedParameter> parameters);

  /// One step of every parameter that has a gradient. `groups`: the settings of now, as many as there are groups;
  /// `has_gradient`: for each parameter.
  void step(StepOptimizer& optimizer, std::span<float> params, std::span<const float> grads,
            const std::vector<job::Optimizer>& groups, const std::vector<bool>& has_gradient, float grad_scale);

  /// Updates made, for each parameter.
  [[nodiscard]] const std::vector<std::int64_t>& steps() const { return steps_; }
  /// From a checkpoint: as many as there are parameters.
  void set_steps(std::vector<std::int64_t> steps);

 private:
  std::vector<GroupedParameter> parameters_;
  std::vector<std::int64_t> steps_;
};

}  // namespace sgd::worker
