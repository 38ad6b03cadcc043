#pragma once
// ReduceLROnPlateau: lowers the rate when a metric has not got better for more than `patience` epochs.
//
//   better ─► best, no bad epochs      not better ─► one more bad epoch; more than patience: rate * factor, cooldown
//   during cooldown bad epochs do not count

#include "worker/core/schedules/schedule.hpp"

namespace sgd::worker {

class PlateauSchedule final : public Schedule {
 public:
  PlateauSchedule(const nlohmann::json& settings, double base_lr);

  [[nodiscard]] Rates rates() const override { return {lr_, std::nullopt}; }
  /// The count is kept for the checkpoint; the rate follows from what was observed.
  void set_count(std::int64_t count) override { count_ = count; }
  [[nodiscard]] std::string metric() const override { return metric_; }
  /// A value that is not a number is not better.
  void observe(double value) override;
  [[nodiscard]] nlohmann::json export_state() const override;
  Status import_state(const nlohmann::json& state) override;

 private:
  [[nodiscard]] double worst() const;
  [[nodiscard]] bool is_better(double value) const;
  [[nodiscard]] double reduced(double lr) const;

  std::string metric_;
  bool wants_least_;  // "min": the metric is to get smaller.
  bool is_relative_;  // The threshold is a share of the best value.
  double factor_;
  double threshold_;
  double min_lr_;
  double eps_;  // A smaller change of the rate is not made.
  std::int64_t patience_;
  std::int64_t cooldown_;
  double base_lr_;

  std::int64_t count_ = 0;
  double best_;
  std::int64_t bad_epochs_ = 0;
  std::int64_t cooldown_left_ = 0;
  std::int64_t reductions_ = 0;
  double lr_;  // base_lr_, so often reduced.
};

}  // namespace sgd::worker
