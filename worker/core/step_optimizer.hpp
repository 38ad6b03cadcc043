#pragma once
// Optimizers over flat float buffers: one pass over parameters, gradients and state, with the
// gradient's scale (1 / world size) folded in. The formulas are PyTorch's. Loops are element by
// element and compiled without contraction, so the result is the same on every x86-64 CPU.
//
// An update is of a range: all of the buffer, or one parameter with its group's settings and its own count of updates
// (parameter_groups). A state buffer belongs to the object, has the parameters' length and layout, and is what a
// checkpoint stores, with steps().

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/job/spec.hpp"

namespace sgd::worker {

/// One buffer of an optimizer's state, for example {"momentum_buffer", ...}.
struct OptimizerBuffer {
  std::string name;
  std::span<float> values;
};

/// A stretch of the flat buffers.
struct FlatRange {
  std::size_t offset = 0;
  std::size_t count = 0;
};

/// What an update does besides following the settings.
struct RangeUpdate {
  FlatRange range;
  float grad_scale = 1;
  std::int64_t step = 1;  ///< Which update of this range it is, from 1: the first momentum, the bias correction.
};

class StepOptimizer {
 public:
  virtual ~StepOptimizer() = default;

  /// params -= update(grads * grad_scale), inside the range alone. The spans have the length given at construction;
  /// `settings` are those of a group given there, with the rate and the momentum of now.
  void update(std::span<float> params, std::span<const float> grads, const job::Optimizer& settings,
              const RangeUpdate& what);

  /// All parameters, with the settings given at construction but for the rate; counted in steps().
  void step(std::span<float> params, std::span<const float> grads, double lr, float grad_scale);
  /// The same, with settings of now.
  void step(std::span<float> params, std::span<const float> grads, const job::Optimizer& settings, float grad_scale);

  /// By PyTorch's names: "momentum_buffer" for SGD with momentum, "exp_avg" and "exp_avg_sq" for Adam and AdamW,
  /// nothing for plain SGD.
  [[nodiscard]] virtual std::vector<OptimizerBuffer> buffers() = 0;

  /// Steps of the whole buffer: the number of its next update is one more.
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  /// After the buffers were filled from a checkpoint.
  void set_steps(std::int64_t steps) { steps_ = steps; }

 protected:
  StepOptimizer(job::Optimizer settings, std::size_t count) : settings_(std::move(settings)), count_(count) {}

  /// The range's own part of the buffers.
  struct Part {
    std::size_t offset;
    std::size_t count;
    float* params;
    const float* grads;
  };

 private:
  virtual void apply(const Part& part, const job::Optimizer& settings, float grad_scale, std::int64_t step) = 0;

  job::Optimizer settings_;
  std::size_t count_;
  std::int64_t steps_ = 0;
};

/// For parameter groups of one type, each with its settings; `count` parameters. What a group needs is kept for all.
[[nodiscard]] std::unique_ptr<StepOptimizer> make_step_optimizer(const std::vector<job::Optimizer>& groups,
                                                                 std::size_t count);
/// By `settings.type`: "sgd", "adam", "adamw", "rmsprop" or "adagrad".
[[nodiscard]] std::unique_ptr<StepOptimizer> make_step_optimizer(const job::Optimizer& settings, std::size_t count);

}  // namespace sgd::worker
