#pragma once
// One optimizer step over all ranks:
//   loss -> backward into the flat gradients -> all_reduce with the control word -> fused update of what has gradients
// Owns the optimizer and the learning rate; knows nothing of epochs' contents, saves and stops:
// the caller gets the agreed control word and acts on it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "common/job/spec.hpp"
#include "worker/collective/collective.hpp"
#include "worker/core/parameter_groups.hpp"
#include "worker/core/schedules/schedule.hpp"
#include "worker/core/step_optimizer.hpp"
#include "worker/torch/flat_parameters.hpp"
#include "worker/torch/used_parameters.hpp"

namespace sgd::worker {

class Stepper {
 public:
  /// Both must outlive this object; the gradients of `parameters` become views of the collective's buffer.
  Stepper(FlatParameters& parameters, Collective& collective, const job::Training& training);

  /// Collective. Returns the control word agreed by all ranks. When the loss of some rank is not finite, every
  /// rank throws an error that names the step and those ranks; when only the sum of some gradient is not, one that
  /// names the step and the parameters. Then no weight changes.
  std::uint32_t step(const at::Tensor& loss, std::uint32_t control_word);

  /// Optimizer steps since the run's start, in whatever processes they were made.
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps);
  /// Completed epochs, for a scheduler that counts those.
  void set_epochs_completed(std::int64_t epochs);
  /// For a scheduler that counts the user's calls. Not collective: every rank has to call it at the same place. Throws
  /// where the scheduler counts something else.
  void step_scheduler();
  /// The metric of validation that observe() wants after each epoch; empty: none.
  [[nodiscard]] std::string metric() const { return schedule_ ? schedule_->metric() : ""; }
  /// Its value, equal on all ranks; only where there is such a metric.
  void observe(double value);

  [[nodiscard]] std::int64_t scheduler_count() const;
  /// "scheduler" of a checkpoint's state.
  [[nodiscard]] nlohmann::json scheduler_state() const;
  /// Before set_steps() and set_epochs_completed(). Throws where the state is damaged.
  void load_scheduler_state(const nlohmann::json& state);

  [[nodiscard]] double learning_rate() const;
  [[nodiscard]] double last_loss() const { return last_loss_; }
  [[nodiscard]] StepOptimizer& optimizer() { return *optimizer_; }
  /// Updates that each parameter has had, in the order of the places.
  [[nodiscard]] const std::vector<std::int64_t>& parameter_steps() const { return groups_.steps(); }
  /// From a checkpoint. Throws where there are not as many as parameters.
  void set_parameter_steps(std::vector<std::int64_t> steps);

 private:
  [[noreturn]] void report_loss_not_finite();
  [[noreturn]] void report_gradients_not_finite();
  void follow_schedule();
  [[nodiscard]] float clipped_scale(const std::vector<bool>& used);

  FlatParameters& parameters_;
  Collective& collective_;
  job::Optimizer settings_;             // As of now: the schedule changes rate and momentum.
  std::unique_ptr<Schedule> schedule_;  // Or null.
  std::string frequency_;               // What the schedule counts.
  std::unique_ptr<StepOptimizer> optimizer_;
  ParameterGroups groups_;
  UsedParameters used_;
  std::optional<double> clip_norm_;
  std::optional<double> clip_value_;
  std::int64_t steps_ = 0;
  std::int64_t epochs_completed_ = 0;
  std::int64_t scheduler_calls_ = 0;
  double last_loss_ = 0;
};

}  // namespace sgd::worker
