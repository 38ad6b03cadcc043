#include <algorithm>
#include <numbers>
#include <string>
#include <vector>

#include "worker/core/schedules/cosine.hpp"
#include "worker/core/schedules/rules.hpp"

namespace sgd::worker {
namespace {

/// A part of the cycle: where it ends, and between which rates it goes. The first begins at 0.
struct Phase {
  double end;
  double lr_from, lr_to;
  double momentum_from, momentum_to;
};

class OneCycleRule final : public ScheduleRule {
 public:
  explicit OneCycleRule(const nlohmann::json& settings)
      : total_steps_(settings["total_steps"]),
        is_linear_(settings["anneal_strategy"].get_ref<const std::string&>() == "linear"),
        cycles_momentum_(settings["cycle_momentum"]) {
    const auto number = [&settings](const char* key) { return settings[key].get<double>(); };
    const double high = number("max_lr");
    const double low = high / number("div_factor");
    const double last = low / number("final_div_factor");
    const double base = number("base_momentum");
    const double most = number("max_momentum");
    const auto total = static_cast<double>(total_steps_);
    const double start = number("pct_start");
    phases_.push_back({start * total - 1, low, high, most, base});
    if (settings["three_phase"]) {
      phases_.push_back({2 * start * total - 2, high, low, base, most});
      phases_.push_back({total - 1, low, last, most, most});
    } else {
      phases_.push_back({total - 1, high, last, base, most});
    }
  }

  Rates begin(Rates rates) const override { return next(rates, 0); }

  Rates next(Rates rates, std::int64_t count) const override {
    // PyTorch goes one step past the end, to a rate that may be negative, and then throws.
    const auto at = static_cast<double>(std::min(count, total_steps_ - 1));
    double begin = 0;
    auto phase = phases_.begin();
    for (; phase + 1 != phases_.end() && at > phase->end; ++phase) begin = phase->end;
    // A phase without a length is over as soon as it is reached.
    const double share = phase->end == begin ? 1 : (at - begin) / (phase->end - begin);
    rates.lr = between(phase->lr_from, phase->lr_to, share);
    if (cycles_momentum_) rates.momentum = between(phase->momentum_from, phase->momentum_to, share);
    return rates;
  }

 private:
  [[nodiscard]] double between(double from, double to, double share) const {
    if (is_linear_) return (to - from) * share + from;
    return to + (from - to) / 2.0 * (cosine(std::numbers::pi * share) + 1);
  }

  std::int64_t total_steps_;
  bool is_linear_;  // Else along a cosine.
  bool cycles_momentum_;
  std::vector<Phase> phases_;
};

}  // namespace

std::unique_ptr<ScheduleRule> make_one_cycle(const nlohmann::json& settings) {
  return std::make_unique<OneCycleRule>(settings);
}

}  // namespace sgd::worker
