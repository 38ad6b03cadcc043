#include <cmath>

#include "common/base/assert.hpp"
#include "worker/core/aligned_floats.hpp"
#include "worker/core/optimizers/make.hpp"
#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

struct RmspropStep {
  float lr, scale, weight_decay, alpha, one_minus_alpha, eps, momentum;
};

/// What the loops work on; a buffer that a loop does not use is null.
struct RmspropBuffers {
  float* params;
  const float* grads;
  float* squares;
  float* means;
  float* momenta;
  std::size_t count;
};

SGD_CLONES void rmsprop(const RmspropBuffers& at, RmspropStep s) {
  float* __restrict params = at.params;
  const float* __restrict grads = at.grads;
  float* __restrict squares = at.squares;
  for (std::size_t i = 0; i < at.count; ++i) {
    const float grad = grads[i] * s.scale + s.weight_decay * params[i];
    const float square = squares[i] * s.alpha + grad * grad * s.one_minus_alpha;
    squares[i] = square;
    params[i] -= s.lr * grad / (std::sqrt(square) + s.eps);
  }
}

SGD_CLONES void rmsprop_momentum(const RmspropBuffers& at, RmspropStep s) {
  float* __restrict params = at.params;
  const float* __restrict grads = at.grads;
  float* __restrict squares = at.squares;
  float* __restrict momenta = at.momenta;
  for (std::size_t i = 0; i < at.count; ++i) {
    const float grad = grads[i] * s.scale + s.weight_decay * params[i];
    const float square = squares[i] * s.alpha + grad * grad * s.one_minus_alpha;
    const float momentum = momenta[i] * s.momentum + grad / (std::sqrt(square) + s.eps);
    squares[i] = square;
    momenta[i] = momentum;
    params[i] -= s.lr * momentum;
  }
}

// The variance of a gradient that does not change is 0 but for rounding: below 0 it would make PyTorch's root, and
// every weight after it, not a number.

SGD_CLONES void rmsprop_centered(const RmspropBuffers& at, RmspropStep s) {
  float* __restrict params = at.params;
  const float* __restrict grads = at.grads;
  float* __restrict squares = at.squares;
  float* __restrict means = at.means;
  for (std::size_t i = 0; i < at.count; ++i) {
    const float grad = grads[i] * s.scale + s.weight_decay * params[i];
    const float square = squares[i] * s.alpha + grad * grad * s.one_minus_alpha;
    const float mean = means[i] + (grad - means[i]) * s.one_minus_alpha;
    const float variance = square - mean * mean;
    squares[i] = square;
    means[i] = mean;
    params[i] -= s.lr * grad / (std::sqrt(variance < 0 ? 0 : variance) + s.eps);
  }
}

SGD_CLONES void rmsprop_centered_momentum(const RmspropBuffers& at, RmspropStep s) {
  float* __restrict params = at.params;
  const float* __restrict grads = at.grads;
  float* __restrict squares = at.squares;
  float* __restrict means = at.means;
  float* __restrict momenta = at.momenta;
  for (std::size_t i = 0; i < at.count; ++i) {
    const float grad = grads[i] * s.scale + s.weight_decay * params[i];
    const float square = squares[i] * s.alpha + grad * grad * s.one_minus_alpha;
    const float mean = means[i] + (grad - means[i]) * s.one_minus_alpha;
    const float variance = square - mean * mean;
    const float momentum = momenta[i] * s.momentum + grad / (std::sqrt(variance < 0 ? 0 : variance) + s.eps);
    squares[i] = square;
    means[i] = mean;
    momenta[i] = momentum;
    params[i] -= s.lr * momentum;
  }
}

class RmspropOptimizer final : public StepOptimizer {
 public:
  RmspropOptimizer(const OptimizerGroups& groups, std::size_t count)
      : StepOptimizer(groups.front(), count),
        squares_(count),
        momenta_(count_if_needed(groups, count, [](const job::Optimizer& group) { return group.momentum != 0; })),
        means_(count_if_needed(groups, count, [](const job::Optimizer& group) { return group.centered; })) {}

  std::vector<OptimizerBuffer> buffers() override {
    std::vector<OptimizerBuffer> all = {{"square_avg", squares_.span()}};
    if (momenta_.size() != 0) all.push_back({"momentum_buffer", momenta_.span()});
    if (means_.size() != 0) all.push_back({"grad_avg", means_.span()});
    return all;
  }

 private:
  void apply(const Part& part, const job::Optimizer& settings, float grad_scale, std::int64_t) override {
    RmspropStep s{};
    s.lr = static_cast<float>(settings.lr);
    s.scale = grad_scale;
    s.weight_decay = static_cast<float>(settings.weight_decay);
    s.alpha = static_cast<float>(settings.alpha);
    s.one_minus_alpha = static_cast<float>(1 - settings.alpha);
    s.eps = static_cast<float>(settings.eps);
    s.momentum = static_cast<float>(settings.momentum);
    const bool moves_on = settings.momentum != 0;
    SGD_ASSERT(!moves_on || momenta_.size() != 0);
    SGD_ASSERT(!settings.centered || means_.size() != 0);
    const RmspropBuffers at{part.params,
                            part.grads,
                            squares_.data() + part.offset,
                            settings.centered ? means_.data() + part.offset : nullptr,
                            moves_on ? momenta_.data() + part.offset : nullptr,
                            part.count};
    if (settings.centered) {
      (moves_on ? rmsprop_centered_momentum : rmsprop_centered)(at, s);
    } else {
      (moves_on ? rmsprop_momentum : rmsprop)(at, s);
    }
  }

  AlignedFloats squares_;
  AlignedFloats momenta_;
  AlignedFloats means_;  // With `centered`: of the gradients.
};

}  // namespace

std::unique_ptr<StepOptimizer> make_rmsprop(const OptimizerGroups& groups, std::size_t count) {
  return std::make_unique<RmspropOptimizer>(groups, count);
}

}  // namespace sgd::worker
