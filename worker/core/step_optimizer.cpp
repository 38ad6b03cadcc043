#include "worker/core/step_optimizer.hpp"

#include "common/base/assert.hpp"
#include "worker/core/optimizers/make.hpp"

namespace sgd::worker {

void StepOptimizer::update(std::span<float> params, std::span<const float> grads, const job::Optimizer& settings,
                           const RangeUpdate& what) {
  SGD_ASSERT(params.size() == count_ && grads.size() == count_);
  SGD_ASSERT(what.range.offset <= count_ && what.range.count <= count_ - what.range.offset);
  SGD_ASSERT(settings.type == settings_.type && what.step > 0);
  const std::size_t offset = what.range.offset;
  apply({offset, what.range.count, params.data() + offset, grads.data() + offset}, settings, what.grad_scale,
        what.step);
}

void StepOptimizer::step(std::span<float> params, std::span<const float> grads, double lr, float grad_scale) {
  settings_.lr = lr;
  step(params, grads, settings_, grad_scale);
}

void StepOptimizer::step(std::span<float> params, std::span<const float> grads, const job::Optimizer& settings,
                         float grad_scale) {
  ++steps_;
  update(params, grads, settings, {{0, params.size()}, grad_scale, steps_});
}

std::unique_ptr<StepOptimizer> make_step_optimizer(const std::vector<job::Optimizer>& groups, std::size_t count) {
  SGD_ASSERT(!groups.empty());
  for (const job::Optimizer& group : groups) SGD_ASSERT(group.type == groups.front().type);
  const std::string& type = groups.front().type;
  if (type == "sgd") return make_sgd(groups, count);
  if (type == "rmsprop") return make_rmsprop(groups, count);
  if (type == "adagrad") return make_adagrad(groups, count);
  SGD_ASSERT(type == "adam" || type == "adamw");
  return make_adam(groups, count);
}

std::unique_ptr<StepOptimizer> make_step_optimizer(const job::Optimizer& settings, std::size_t count) {
  return make_step_optimizer(std::vector<job::Optimizer>{settings}, count);
}

}  // namespace sgd::worker
