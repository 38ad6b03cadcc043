#pragma once
// What PyTorch's scheduler classes do to the rates, each as two functions without a memory: at the start, and at each
// count after it. Most change what is there, so that several can be chained; cosine_warm_restarts and one_cycle make
// the rates anew from the count.

#include <cstdint>
#include <memory>

#include "common/json/nlohmann.hpp"
#include "worker/core/schedules/schedule.hpp"

namespace sgd::worker {

class ScheduleRule {
 public:
  virtual ~ScheduleRule() = default;

  /// What PyTorch's constructor makes of the rates.
  [[nodiscard]] virtual Rates begin(Rates rates) const { return rates; }
  /// The rates of `count`, from 1, where `rates` are those of the count before it, as the chain's earlier rules have
  /// changed them.
  [[nodiscard]] virtual Rates next(Rates rates, std::int64_t count) const = 0;
};

/// By `settings["type"]`, with all defaults filled in; `base_lr` is the optimizer's own rate.
[[nodiscard]] std::unique_ptr<ScheduleRule> make_rule(const nlohmann::json& settings, double base_lr);

/// OneCycleLR: up to max_lr and down again, with momentum against it. Stays at its end.
[[nodiscard]] std::unique_ptr<ScheduleRule> make_one_cycle(const nlohmann::json& settings);

}  // namespace sgd::worker
