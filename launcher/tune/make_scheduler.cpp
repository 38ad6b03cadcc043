#include "launcher/tune/make_scheduler.hpp"

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "launcher/tune/asha_promotion.hpp"
#include "launcher/tune/asha_stopping.hpp"
#include "launcher/tune/fifo.hpp"
#include "launcher/tune/hyperband.hpp"
#include "launcher/tune/median.hpp"
#include "launcher/tune/pbt.hpp"

namespace sgd::tune {

std::unique_ptr<Scheduler> make_scheduler(const ExperimentSpec& spec) {
  const SchedulerSpec& of = spec.scheduler;
  if (of.type == "asha") {
    const AshaRules rules{spec.mode, of.grace_epochs, of.max_epochs, of.reduction_factor, of.brackets, spec.seed};
    if (of.promotes) return std::make_unique<AshaPromotion>(rules);
    return std::make_unique<AshaStopping>(rules);
  }
  if (of.type == "hyperband")
    return std::make_unique<Hyperband>(HyperbandRules{spec.mode, of.max_epochs, of.reduction_factor});
  if (of.type == "median")
    return std::make_unique<MedianRule>(
        MedianRules{spec.mode, of.startup_trials, of.warmup_epochs, of.interval_epochs, of.least_trials});
  if (of.type == "pbt") {
    PbtRules rules{spec.mode, of.interval_epochs, of.burn_in_epochs, of.quantile, {}, spec.parameters, spec.seed};
    rules.explore = {of.resample_probability, of.factors, of.mutates};
    return std::make_unique<Pbt>(std::move(rules));
  }
  SGD_ASSERT(of.type == "fifo");
  return std::make_unique<Fifo>();
}

Result<std::unique_ptr<Scheduler>> restore_scheduler(const ExperimentSpec& spec, const nlohmann::json& state) {
  std::unique_ptr<Scheduler> scheduler = make_scheduler(spec);
  bool is_read = false;
  try {
    is_read = scheduler->take_state(state);
  } catch (const nlohmann::json::exception&) {
    is_read = false;
  }
  if (!is_read) return Error{fmt::format("the kept state of the scheduler \"{}\" makes no sense", spec.scheduler.type)};
  return scheduler;
}

}  // namespace sgd::tune
