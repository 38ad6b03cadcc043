#pragma once
// A schedule that is a function of the count alone. The rates of a count are made from those before it, so the state
// names them: a rank that takes over after ten million batches need not make them anew.

#include <vector>

#include "worker/core/schedules/rules.hpp"
#include "worker/core/schedules/schedule.hpp"

namespace sgd::worker {

class TimedSchedule final : public Schedule {
 public:
  /// `chain`: the settings of each rule; they change the rates one after the other.
  TimedSchedule(const std::vector<nlohmann::json>& chain, double base_lr);

  [[nodiscard]] Rates rates() const override { return rates_; }
  void set_count(std::int64_t count) override;
  [[nodiscard]] nlohmann::json export_state() const override;
  Status import_state(const nlohmann::json& state) override;

 private:
  void begin();

  nlohmann::json settings_;  // What the rates follow from: the base rate and the chain.
  std::vector<std::unique_ptr<ScheduleRule>> rules_;
  double base_lr_;
  std::int64_t count_ = 0;
  Rates rates_;
};

}  // namespace sgd::worker
