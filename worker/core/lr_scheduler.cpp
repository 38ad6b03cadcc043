#include "worker/core/lr_scheduler.hpp"

#include "common/base/assert.hpp"

namespace sgd::worker {

StepLr::StepLr(double base_lr, std::int64_t step_size, double gamma)
    : base_lr_(base_lr), step_size_(step_size), gamma_(gamma), value_(base_lr) {
  SGD_ASSERT(step_size > 0);
}

double StepLr::lr(std::int64_t count) const {
  SGD_ASSERT(count >= 0);
  const std::int64_t wanted = count / step_size_;
  if (wanted < decays_) {
    decays_ = 0;
    value_ = base_lr_;
  }
  while (decays_ < wanted) {
    const double next = value_ * gamma_;
    if (next == value_) {  // Constant from here on (gamma 1, or 0 reached): no need to count up.
      decays_ = wanted;
      break;
    }
    value_ = next;
    ++decays_;
  }
  return value_;
}

}  // namespace sgd::worker
