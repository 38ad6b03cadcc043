#include "worker/core/schedules/timed_schedule.hpp"

#include <bit>

#include "common/base/assert.hpp"
#include "worker/core/schedules/state.hpp"

namespace sgd::worker {

TimedSchedule::TimedSchedule(const std::vector<nlohmann::json>& chain, double base_lr) : base_lr_(base_lr) {
  settings_["lr"] = base_lr;
  settings_["chain"] = chain;
  for (const nlohmann::json& one : chain) rules_.push_back(make_rule(one, base_lr));
  begin();
}

void TimedSchedule::begin() {
  count_ = 0;
  rates_ = {base_lr_, std::nullopt};
  for (const auto& rule : rules_) rates_ = rule->begin(rates_);
}

void TimedSchedule::set_count(std::int64_t count) {
  SGD_ASSERT(count >= 0);
  if (count < count_) begin();
  while (count_ < count) {
    ++count_;
    for (const auto& rule : rules_) rates_ = rule->next(rates_, count_);
  }
}

nlohmann::json TimedSchedule::export_state() const {
  nlohmann::json state = nlohmann::json::object();
  state["count"] = count_;
  state["of"] = settings_;
  state["lr_bits"] = std::bit_cast<std::uint64_t>(rates_.lr);
  if (rates_.momentum) state["momentum_bits"] = std::bit_cast<std::uint64_t>(*rates_.momentum);
  return state;
}

Status TimedSchedule::import_state(const nlohmann::json& state) {
  const Result<std::int64_t> count = count_in(state, "count");
  if (!count) return count.error();
  // Other settings, or a state of the count alone: the rates are made anew, for that count.
  if (!state.contains("of") || state["of"] != settings_) {
    set_count(count.value());
    return {};
  }
  const Result<double> lr = bits_in(state, "lr_bits");
  if (!lr) return lr.error();
  Rates rates{lr.value(), std::nullopt};
  if (rates_.momentum) {
    const Result<double> momentum = bits_in(state, "momentum_bits");
    if (!momentum) return momentum.error();
    rates.momentum = momentum.value();
  }
  count_ = count.value();
  rates_ = rates;
  return {};
}

}  // namespace sgd::worker
