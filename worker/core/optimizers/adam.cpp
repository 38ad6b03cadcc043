#include <cmath>

#include "common/base/assert.hpp"
#include "worker/core/aligned_floats.hpp"
#include "worker/core/optimizers/make.hpp"
#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

struct AdamStep {
  float scale;
  float coupled_decay;  // Adam: weight decay added to the gradient.
  float param_factor;   // AdamW: 1 - lr * weight decay; else 1.
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float step_size;        // lr / (1 - beta1^t).
  float root_correction;  // sqrt(1 - beta2^t).
  float eps;
};

SGD_CLONES void adam(float* __restrict params, const float* __restrict grads, float* __restrict means,
                     float* __restrict squares, std::size_t count, AdamStep s) {
  for (std::size_t i = 0; i < count; ++i) {
    const float grad = grads[i] * s.scale + s.coupled_decay * params[i];
    const float mean = means[i] + (grad - means[i]) * s.one_minus_beta1;
    const float square = squares[i] * s.beta2 + grad * grad * s.one_minus_beta2;
    means[i] = mean;
    squares[i] = square;
    params[i] = params[i] * s.param_factor - s.step_size * (mean / (std::sqrt(square) / s.root_correction + s.eps));
  }
}

SGD_CLONES void adam_amsgrad(float* __restrict params, const float* __restrict grads, float* __restrict means,
                             float* __restrict squares, float* __restrict largest, std::size_t count, AdamStep s) {
  for (std::size_t i = 0; i < count; ++i) {
    const float grad = grads[i] * s.scale + s.coupled_decay * params[i];
    const float mean = means[i] + (grad - means[i]) * s.one_minus_beta1;
    const float square = squares[i] * s.beta2 + grad * grad * s.one_minus_beta2;
    const float most = square > largest[i] ? square : largest[i];
    means[i] = mean;
    squares[i] = square;
    largest[i] = most;
    params[i] = params[i] * s.param_factor - s.step_size * (mean / (std::sqrt(most) / s.root_correction + s.eps));
  }
}

class AdamOptimizer final : public StepOptimizer {
 public:
  AdamOptimizer(const OptimizerGroups& groups, std::size_t count)
      : StepOptimizer(groups.front(), count),
        decoupled_(groups.front().type == "adamw"),
        means_(count),
        squares_(count),
        largest_(count_if_needed(groups, count, [](const job::Optimizer& group) { return group.amsgrad; })) {}

  std::vector<OptimizerBuffer> buffers() override {
    std::vector<OptimizerBuffer> all = {{"exp_avg", means_.span()}, {"exp_avg_sq", squares_.span()}};
    if (largest_.size() != 0) all.push_back({"max_exp_avg_sq", largest_.span()});
    return all;
  }

 private:
  void apply(const Part& part, const job::Optimizer& settings, float grad_scale, std::int64_t step) override {
    const auto t = static_cast<double>(step);
    AdamStep s{};
    s.scale = grad_scale;
    s.coupled_decay = decoupled_ ? 0.0f : static_cast<float>(settings.weight_decay);
    s.param_factor = decoupled_ ? static_cast<float>(1 - settings.lr * settings.weight_decay) : 1.0f;
    s.beta2 = static_cast<float>(settings.beta2);
    s.one_minus_beta1 = static_cast<float>(1 - settings.beta1);
    s.one_minus_beta2 = static_cast<float>(1 - settings.beta2);
    s.step_size = static_cast<float>(settings.lr / (1 - std::pow(settings.beta1, t)));
    s.root_correction = static_cast<float>(std::sqrt(1 - std::pow(settings.beta2, t)));
    s.eps = static_cast<float>(settings.eps);
    float* const means = means_.data() + part.offset;
    float* const squares = squares_.data() + part.offset;
    if (!settings.amsgrad) {
      adam(part.params, part.grads, means, squares, part.count, s);
      return;
    }
    SGD_ASSERT(largest_.size() != 0);
    adam_amsgrad(part.params, part.grads, means, squares, largest_.data() + part.offset, part.count, s);
  }

  bool decoupled_;
  AlignedFloats means_;
  AlignedFloats squares_;
  AlignedFloats largest_;  // With amsgrad: of the squares, so far.
};

}  // namespace

std::unique_ptr<StepOptimizer> make_adam(const OptimizerGroups& groups, std::size_t count) {
  return std::make_unique<AdamOptimizer>(groups, count);
}

}  // namespace sgd::worker
