#include "worker/core/step_optimizer.hpp"

#include <cmath>

#include "common/base/assert.hpp"
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

class SgdOptimizer final : public StepOptimizer {
 public:
  SgdOptimizer(const job::Optimizer& settings, std::size_t count)
      : settings_(settings), momenta_(settings.momentum != 0 ? count : 0) {}

  std::vector<OptimizerBuffer> buffers() override {
    if (settings_.momentum == 0) return {};
    return {{"momentum_buffer", momenta_.span()}};
  }

 private:
  void apply(std::span<float> params, std::span<const float> grads, double lr, float grad_scale,
             std::int64_t step) override {
    SgdStep s{};
    s.lr = static_cast<float>(lr);
    s.scale = grad_scale;
    s.weight_decay = static_cast<float>(settings_.weight_decay);
    s.momentum = static_cast<float>(settings_.momentum);
    s.nesterov_momentum = s.momentum;
    // The first momentum is the gradient itself, without dampening.
    s.keep = step == 1 ? 1.0f : static_cast<float>(1 - settings_.dampening);
    if (settings_.momentum == 0) {
      sgd_plain(params.data(), grads.data(), params.size(), s);
      return;
    }
    SGD_ASSERT(momenta_.size() == params.size());
    if (step == 1) s.momentum = 0;
    const auto loop = settings_.nesterov ? sgd_nesterov : sgd_momentum;
    loop(params.data(), grads.data(), momenta_.data(), params.size(), s);
  }

  job::Optimizer settings_;
  AlignedFloats momenta_;
};

class AdamOptimizer final : public StepOptimizer {
 public:
  AdamOptimizer(const job::Optimizer& settings, std::size_t count, bool decoupled)
      : settings_(settings), decoupled_(decoupled), means_(count), squares_(count) {}

  std::vector<OptimizerBuffer> buffers() override {
    return {{"exp_avg", means_.span()}, {"exp_avg_sq", squares_.span()}};
  }

 private:
  void apply(std::span<float> params, std::span<const float> grads, double lr, float grad_scale,
             std::int64_t step) override {
    SGD_ASSERT(means_.size() == params.size());
    const auto t = static_cast<double>(step);
    AdamStep s{};
    s.scale = grad_scale;
    s.coupled_decay = decoupled_ ? 0.0f : static_cast<float>(settings_.weight_decay);
    s.param_factor = decoupled_ ? static_cast<float>(1 - lr * settings_.weight_decay) : 1.0f;
    s.beta2 = static_cast<float>(settings_.beta2);
    s.one_minus_beta1 = static_cast<float>(1 - settings_.beta1);
    s.one_minus_beta2 = static_cast<float>(1 - settings_.beta2);
    s.step_size = static_cast<float>(lr / (1 - std::pow(settings_.beta1, t)));
    s.root_correction = static_cast<float>(std::sqrt(1 - std::pow(settings_.beta2, t)));
    s.eps = static_cast<float>(settings_.eps);
    adam(params.data(), grads.data(), means_.data(), squares_.data(), params.size(), s);
  }

  job::Optimizer settings_;
  bool decoupled_;
  AlignedFloats means_;
  AlignedFloats squares_;
};

}  // namespace

void StepOptimizer::step(std::span<float> params, std::span<const float> grads, double lr, float grad_scale) {
  SGD_ASSERT(params.size() == grads.size());
  ++steps_;
  apply(params, grads, lr, grad_scale, steps_);
}

std::unique_ptr<StepOptimizer> make_step_optimizer(const job::Optimizer& settings, std::size_t count) {
  if (settings.type == "sgd") return std::make_unique<SgdOptimizer>(settings, count);
  SGD_ASSERT(settings.type == "adam" || settings.type == "adamw");
  return std::make_unique<AdamOptimizer>(settings, count, settings.type == "adamw");
}

}  // namespace sgd::worker
