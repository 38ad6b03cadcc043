#pragma once
// Learning-rate schedules as functions of a count: epochs or batches completed, as the job says.
// Nothing is stored in a checkpoint but that count.

#include <cstdint>

namespace sgd::worker {

/// PyTorch's StepLR: base_lr * gamma^(count / step_size), by repeated multiplication as PyTorch does it.
class StepLr {
 public:
  /// `step_size` is at least 1.
  StepLr(double base_lr, std::int64_t step_size, double gamma);

  /// The rate after `count` completed epochs or batches.
  [[nodiscard]] double lr(std::int64_t count) const;

 private:
  double base_lr_;
  std::int64_t step_size_;
  double gamma_;
  // The last answer: a later one goes on from it instead of from the start.
  mutable std::int64_t decays_ = 0;
  mutable double value_;
};

}  // namespace sgd::worker
