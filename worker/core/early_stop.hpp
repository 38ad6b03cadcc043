#pragma once
// When training ends before its last epoch: a metric has not got better for `patience` validations in a row.
//
//   better than the best by more than min_delta ─► best, none without      else, and what is no number ─► one more
//   without

#include <cstdint>

#include "common/base/result.hpp"
#include "common/job/spec.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::worker {

class EarlyStop {
 public:
  explicit EarlyStop(const job::EarlyStop& settings);

  [[nodiscard]] const std::string& metric() const { return settings_.metric; }
  /// The metric of a validation, equal on all ranks. `epoch`: of that validation.
  void observe(int epoch, double value);
  [[nodiscard]] bool is_over() const { return without_ >= settings_.patience; }
  /// "val_loss has not got better than 0.25 (epoch 3) in 4 validations".
  [[nodiscard]] std::string reason() const;

  [[nodiscard]] nlohmann::json state() const;
  /// Of a checkpoint; null: it has none. What was seen of another metric counts for nothing.
  [[nodiscard]] Status load(const nlohmann::json& state);

 private:
  [[nodiscard]] double worst() const;

  job::EarlyStop settings_;
  double best_;
  int best_epoch_ = 0;  // 0: there is none.
  std::int64_t without_ = 0;
};

}  // namespace sgd::worker
