#pragma once
// Learning-rate schedules: what a job's "scheduler" makes of the optimizer's rate after so many completed epochs,
// batches or calls. Values are PyTorch's, in the form that its step() without an argument uses: recursive where that
// is.
//
//   make_schedule ─► one plan or several over time: a function of the count      (timed_schedule)
//                └─► lower it when a metric no longer gets better: has a memory  (plateau_schedule)
//
// A checkpoint holds little: the count, and what cannot be told from it, exact to the bit. The state of a job whose
// settings were changed since is read, too: the count goes on, under the new settings.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/base/result.hpp"
#include "common/job/spec.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::worker {

/// What an optimizer's next step is to be made with.
struct Rates {
  double lr = 0;
  std::optional<double> momentum;  ///< Adam's first beta is meant, too. Nothing: the optimizer's own.

  bool operator==(const Rates&) const = default;
};

class Schedule {
 public:
  virtual ~Schedule() = default;

  [[nodiscard]] virtual Rates rates() const = 0;
  /// So many epochs, batches or calls are complete since the run's start. One more costs little; fewer begins anew.
  virtual void set_count(std::int64_t count) = 0;

  /// The metric of validation that observe() wants once an epoch; empty: none.
  [[nodiscard]] virtual std::string metric() const { return ""; }
  /// Its value, equal on all ranks. A schedule without a metric takes no notice.
  virtual void observe(double value) { (void)value; }

  /// With "count" in it.
  [[nodiscard]] virtual nlohmann::json export_state() const = 0;
  /// What export_state() gave, or "count" alone. On an error nothing is changed.
  virtual Status import_state(const nlohmann::json& state) = 0;
};

/// `base_lr` is the optimizer's own rate.
[[nodiscard]] std::unique_ptr<Schedule> make_schedule(const job::Scheduler& settings, double base_lr);

/// The optimizer's settings as `rates` change them.
[[nodiscard]] job::Optimizer with_rates(job::Optimizer settings, const Rates& rates);

}  // namespace sgd::worker
