#include "worker/core/schedules/plateau_schedule.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "worker/core/schedules/state.hpp"

namespace sgd::worker {

PlateauSchedule::PlateauSchedule(const nlohmann::json& settings, double base_lr)
    : metric_(settings["metric"].get<std::string>()),
      wants_least_(settings["mode"] == "min"),
      is_relative_(settings["threshold_mode"] == "rel"),
      factor_(settings["factor"]),
      threshold_(settings["threshold"]),
      min_lr_(settings["min_lr"]),
      eps_(settings["eps"]),
      patience_(settings["patience"]),
      cooldown_(settings["cooldown"]),
      base_lr_(base_lr),
      best_(worst()),
      lr_(base_lr) {}

double PlateauSchedule::worst() const {
  const double infinity = std::numeric_limits<double>::infinity();
  return wants_least_ ? infinity : -infinity;
}

bool PlateauSchedule::is_better(double value) const {
  if (is_relative_) {
    return wants_least_ ? value < best_ * (1.0 - threshold_) : value > best_ * (threshold_ + 1.0);
  }
  return wants_least_ ? value < best_ - threshold_ : value > best_ + threshold_;
}

double PlateauSchedule::reduced(double lr) const {
  const double next = std::max(lr * factor_, min_lr_);
  return lr - next > eps_ ? next : lr;
}

void PlateauSchedule::observe(double value) {
  if (is_better(value)) {
    best_ = value;
    bad_epochs_ = 0;
  } else {
    ++bad_epochs_;
  }
  if (cooldown_left_ > 0) {
    --cooldown_left_;
    bad_epochs_ = 0;
  }
  if (bad_epochs_ <= patience_) return;
  lr_ = reduced(lr_);
  ++reductions_;
  cooldown_left_ = cooldown_;
  bad_epochs_ = 0;
}

nlohmann::json PlateauSchedule::export_state() const {
  nlohmann::json state = nlohmann::json::object();
  state["count"] = count_;
  state["of"]["metric"] = metric_;
  state["of"]["least"] = wants_least_;
  state["best_bits"] = std::bit_cast<std::uint64_t>(best_);
  state["bad_epochs"] = bad_epochs_;
  state["cooldown"] = cooldown_left_;
  state["reductions"] = reductions_;
  return state;
}

Status PlateauSchedule::import_state(const nlohmann::json& state) {
  const Result<std::int64_t> count = count_in(state, "count");
  if (!count) return count.error();
  PlateauSchedule loaded = *this;
  loaded.count_ = count.value();
  loaded.best_ = worst();
  loaded.bad_epochs_ = loaded.cooldown_left_ = loaded.reductions_ = 0;
  if (state.contains("reductions")) {
    const Result<double> best = bits_in(state, "best_bits");
    const Result<std::int64_t> bad_epochs = count_in(state, "bad_epochs");
    const Result<std::int64_t> cooldown = count_in(state, "cooldown");
    const Result<std::int64_t> reductions = count_in(state, "reductions");
    if (!best) return best.error();
    for (const auto& read : {bad_epochs, cooldown, reductions}) {
      if (!read) return read.error();
    }
    // The best value of another metric says nothing here; what the rate was lowered by stays.
    if (state.contains("of") && state["of"] == export_state()["of"]) {
      loaded.best_ = best.value();
      loaded.bad_epochs_ = bad_epochs.value();
      loaded.cooldown_left_ = cooldown.value();
    }
    loaded.reductions_ = reductions.value();
  }
  loaded.lr_ = base_lr_;
  for (std::int64_t done = 0; done < loaded.reductions_; ++done) {
    const double next = reduced(loaded.lr_);
    if (next == loaded.lr_) break;  // From here on nothing changes.
    loaded.lr_ = next;
  }
  *this = std::move(loaded);
  return {};
}

}  // namespace sgd::worker
