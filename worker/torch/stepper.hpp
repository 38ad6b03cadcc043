#pragma once
// One optimizer step over all ranks:
//   loss -> backward into the flat gradients -> all_reduce with the control word -> fused update
// Owns the optimizer and the learning rate; knows nothing of epochs' contents, saves and stops:
// the caller gets the agreed control word and acts on it.

#include <cstdint>
#include <memory>
#include <optional>

#include <torch/torch.h>

#include "common/job/spec.hpp"
#include "worker/collective/collective.hpp"
#include "worker/core/lr_scheduler.hpp"
#include "worker/core/step_optimizer.hpp"
#include "worker/torch/flat_parameters.hpp"

namespace sgd::worker {

class Stepper {
 public:
  /// Both must outlive this object; the gradients of `parameters` become views of the collective's buffer.
  Stepper(FlatParameters& parameters, Collective& collective, const job::Training& training);

  /// Collective. Returns the control word agreed by all ranks. When the loss of some rank is not finite, every
  /// rank throws an error that names the step and those ranks; when only the sum of some gradient is not, one that
  /// names the step and the parameters. Then no weight changes.
  std::uint32_t step(const at::Tensor& loss, std::uint32_t control_word);

  /// Optimizer steps since the run's start, in whatever processes they were made.
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  /// Completed epochs, for a scheduler that counts those.
  void set_epochs_completed(std::int64_t epochs) { epochs_completed_ = epochs; }
  [[nodiscard]] std::int64_t scheduler_count() const;
  [[nodiscard]] double learning_rate() const;
  [[nodiscard]] double last_loss() const { return last_loss_; }
  [[nodiscard]] StepOptimizer& optimizer() { return *optimizer_; }

 private:
  [[noreturn]] void report_loss_not_finite();
  [[noreturn]] void report_gradients_not_finite();

  FlatParameters& parameters_;
  Collective& collective_;
  std::unique_ptr<StepOptimizer> optimizer_;
  double base_lr_;
  std::optional<StepLr> schedule_;
  bool schedule_by_batch_ = false;
  std::int64_t steps_ = 0;
  std::int64_t epochs_completed_ = 0;
  double last_loss_ = 0;
};

}  // namespace sgd::worker
