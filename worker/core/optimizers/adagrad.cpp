#include <cmath>

#include "worker/core/aligned_floats.hpp"
#include "worker/core/optimizers/make.hpp"
#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

struct AdagradStep {
  float lr, scale, weight_decay, eps;
};

SGD_CLONES void adagrad(float* __restrict params, const float* __restrict grads, float* __restrict sums,
                        std::size_t count, AdagradStep s) {
  for (std::size_t i = 0; i < count; ++i) {
    const float grad = grads[i] * s.scale + s.weight_decay * params[i];
    const float sum = sums[i] + grad * grad;
    sums[i] = sum;
    params[i] -= s.lr * grad / (std::sqrt(sum) + s.eps);
  }
}

class AdagradOptimizer final : public StepOptimizer {
 public:
  AdagradOptimizer(const OptimizerGroups& groups, std::size_t count)
      : StepOptimizer(groups.front(), count), sums_(count) {
    // PyTorch, too, begins all groups with the optimizer's own value. Untouched pages are zero and take no memory.
    const auto initial = static_cast<float>(groups.front().initial_accumulator_value);
    if (initial != 0) std::fill_n(sums_.data(), count, initial);
  }

  std::vector<OptimizerBuffer> buffers() override { return {{"sum", sums_.span()}}; }

 private:
  void apply(const Part& part, const job::Optimizer& settings, float grad_scale, std::int64_t step) override {
    AdagradStep s{};
    s.lr = static_cast<float>(settings.lr / (1 + static_cast<double>(step - 1) * settings.lr_decay));
    s.scale = grad_scale;
    s.weight_decay = static_cast<float>(settings.weight_decay);
    s.eps = static_cast<float>(settings.eps);
    adagrad(part.params, part.grads, sums_.data() + part.offset, part.count, s);
  }

  AlignedFloats sums_;
};

}  // namespace

std::unique_ptr<StepOptimizer> make_adagrad(const OptimizerGroups& groups, std::size_t count) {
  return std::make_unique<AdagradOptimizer>(groups, count);
}

}  // namespace sgd::worker
