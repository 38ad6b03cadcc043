#include "common/base/assert.hpp"
#include "worker/core/aligned_floats.hpp"
#include "worker/core/optimizers/make.hpp"
#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

struct SgdStep {
  float lr, scale, weight_decay, momentum, keep, nesterov_momentum;
};

SGD_CLONES void sgd_plain(float* __restrict params, const float* __restrict grads, std::size_t count, SgdStep s) {
  for (std::size_t i = 0; i < count; ++i) {
    const float grad = grads[i] * s.scale + s.weight_decay * params[i];
    params[i] -= s.lr * grad;
  }
}

SGD_CLONES void sgd_momentum(float* __restrict params, const float* __restrict grads, float* __restrict momenta,
                             std::size_t count, SgdStep s) {
  for (std::size_t i = 0; i < count; ++i) {
    const float grad = grads[i] * s.scale + s.weight_decay * params[i];
    const float momentum = s.momentum * momenta[i] + s.keep * grad;
    momenta[i] = momentum;
    params[i] -= s.lr * momentum;
  }
}

SGD_CLONES void sgd_nesterov(float* __restrict params, const float* __restrict grads, float* __restrict momenta,
                             std::size_t count, SgdStep s) {
  for (std::size_t i = 0; i < count; ++i) {
    const float grad = grads[i] * s.scale + s.weight_decay * params[i];
    const float momentum = s.momentum * momenta[i] + s.keep * grad;
    momenta[i] = momentum;
    params[i] -= s.lr * (grad + s.nesterov_momentum * momentum);
  }
}

class SgdOptimizer final : public StepOptimizer {
 public:
  SgdOptimizer(const OptimizerGroups& groups, std::size_t count)
      : StepOptimizer(groups.front(), count),
        momenta_(count_if_needed(groups, count, [](const job::Optimizer& group) { return group.momentum != 0; })) {}

  std::vector<OptimizerBuffer> buffers() override {
    if (momenta_.size() == 0) return {};
    return {{"momentum_buffer", momenta_.span()}};
  }

 private:
  void apply(const Part& part, const job::Optimizer& settings, float grad_scale, std::int64_t step) override {
    SgdStep s{};
    s.lr = static_cast<float>(settings.lr);
    s.scale = grad_scale;
    s.weight_decay = static_cast<float>(settings.weight_decay);
    s.momentum = static_cast<float>(settings.momentum);
    s.nesterov_momentum = s.momentum;
    // The first momentum is the gradient itself, without dampening.
    s.keep = step == 1 ? 1.0f : static_cast<float>(1 - settings.dampening);
    if (settings.momentum == 0) {
      sgd_plain(part.params, part.grads, part.count, s);
      return;
    }
    SGD_ASSERT(momenta_.size() != 0);
    if (step == 1) s.momentum = 0;
    const auto loop = settings.nesterov ? sgd_nesterov : sgd_momentum;
    loop(part.params, part.grads, momenta_.data() + part.offset, part.count, s);
  }

  AlignedFloats momenta_;
};

}  // namespace

std::unique_ptr<StepOptimizer> make_sgd(const OptimizerGroups& groups, std::size_t count) {
  return std::make_unique<SgdOptimizer>(groups, count);
}

}  // namespace sgd::worker
