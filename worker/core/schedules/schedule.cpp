#include "worker/core/schedules/schedule.hpp"

#include <utility>

#include "common/base/assert.hpp"
#include "worker/core/schedules/plateau_schedule.hpp"
#include "worker/core/schedules/timed_schedule.hpp"

namespace sgd::worker {

std::unique_ptr<Schedule> make_schedule(const job::Scheduler& settings, double base_lr) {
  SGD_ASSERT(!settings.chain.empty());
  if (settings.chain.front()["type"] == "reduce_on_plateau") {
    return std::make_unique<PlateauSchedule>(settings.chain.front(), base_lr);
  }
  return std::make_unique<TimedSchedule>(settings.chain, base_lr);
}

job::Optimizer with_rates(job::Optimizer settings, const Rates& rates) {
  settings.lr = rates.lr;
  if (!rates.momentum) return settings;
  const bool is_adam = settings.type == "adam" || settings.type == "adamw";
  (is_adam ? settings.beta1 : settings.momentum) = *rates.momentum;
  return settings;
}

}  // namespace sgd::worker
