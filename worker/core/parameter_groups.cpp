#include "worker/core/parameter_groups.hpp"

#include <utility>

#include "common/base/assert.hpp"

namespace sgd::worker {

ParameterGroups::ParameterGroups(std::vector<GroupedParameter> parameters)
    : parameters_(std::move(parameters)), steps_(parameters_.size()) {
  for (std::size_t i = 1; i < parameters_.size(); ++i) {
    const FlatRange& before = parameters_[i - 1].range;
    SGD_ASSERT(before.offset + before.count <= parameters_[i].range.offset);
  }
}

void ParameterGroups::step(StepOptimizer& optimizer, std::span<float> params, std::span<const float> grads,
                           const std::vector<job::Optimizer>& groups, const std::vector<bool>& has_gradient,
                           float grad_scale) {
  SGD_ASSERT(has_gradient.size() == parameters_.size());
  for (std::size_t i = 0; i < parameters_.size();) {
    if (!has_gradient[i]) {
      ++i;
      continue;
    }
    const GroupedParameter& first = parameters_[i];
    RangeUpdate update{first.range, grad_scale, ++steps_[i]};
    for (++i; i < parameters_.size() && has_gradient[i]; ++i) {
      const GroupedParameter& next = parameters_[i];
      const bool adjoins = update.range.offset + update.range.count == next.range.offset;
      if (!adjoins || next.group != first.group || steps_[i] + 1 != update.step) break;
      update.range.count += next.range.count;
      ++steps_[i];
    }
    SGD_ASSERT(first.group < groups.size());
    optimizer.update(params, grads, groups[first.group], update);
  }
}

void ParameterGroups::set_steps(std::vector<std::int64_t> steps) {
  SGD_ASSERT(steps.size() == parameters_.size());
  steps_ = std::move(steps);
}

}  // namespace sgd::worker
