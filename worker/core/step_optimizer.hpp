#pragma once
// Optimizers over flat float buffers: one pass over parameters, gradients and state, with the
// gradient's scale (1 / world size) folded in. The formulas are PyTorch's. Loops are element by
// element and compiled without contraction, so the result is the same on every x86-64 CPU.
//
// A state buffer belongs to the object, has the parameters' length and layout, and is what a
// checkpoint stores, with steps().

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/job/spec.hpp"
#include "worker/core/aligned_floats.hpp"

namespace sgd::worker {

/// One buffer of an optimizer's state, for example {"momentum_buffer", ...}.
struct OptimizerBuffer {
  std::string name;
  std::span<float> values;
};

class StepOptimizer {
 public:
  virtual ~StepOptimizer() = default;

  /// params -= update(grads * grad_scale). The spans have the length given at construction.
  void step(std::span<float> params, std::span<const float> grads, double lr, float grad_scale);

  /// "momentum_buffer" for SGD with momentum, "exp_avg" and "exp_avg_sq" for Adam and AdamW, nothing for
  /// plain SGD.
  [[nodiscard]] virtual std::vector<OptimizerBuffer> buffers() = 0;

  /// Steps done: decides the first step of a momentum buffer, and Adam's bias correction.
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  /// After the buffers were filled from a checkpoint.
  void set_steps(std::int64_t steps) { steps_ = steps; }

 private:
  /// `step` counts from 1.
  virtual void apply(std::span<float> params, std::span<const float> grads, double lr, float grad_scale,
                     std::int64_t step) = 0;
  std::int64_t steps_ = 0;
};

/// By `settings.type`: "sgd", "adam" or "adamw"; `count` parameters.
[[nodiscard]] std::unique_ptr<StepOptimizer> make_step_optimizer(const job::Optimizer& settings, std::size_t count);

}  // namespace sgd::worker
