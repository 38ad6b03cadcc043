#pragma once
// One optimizer over all ranks: its parameters lie side by side in the flat buffer, and an update is
//   all_reduce of their gradients with the control word -> clip -> fused update of what has gradients
// with the options that the user's object has at that moment. Owns the buffers, the counts and the schedules.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "common/job/spec.hpp"
#include "worker/collective/collective.hpp"
#include "worker/core/parameter_groups.hpp"
#include "worker/core/schedules/schedule.hpp"
#include "worker/core/step_optimizer.hpp"
#include "worker/torch/flat_parameters.hpp"
#include "worker/torch/optimizer_record.hpp"
#include "worker/torch/prepared_optimizer.hpp"
#include "worker/torch/used_parameters.hpp"

namespace sgd::worker {

/// An optimizer as it was registered.
struct RegisteredOptimizer {
  std::shared_ptr<PreparedOptimizer> optimizer;
  std::optional<job::Scheduler> schedule;
  bool is_the_jobs = false;           ///< Made from the job's "optimizer".
  std::size_t first = 0;              ///< Of its parameters, among all that are trained.
  std::vector<std::size_t> group_of;  ///< Of each of its parameters.
};

/// Limits of the mean gradient of an update; at most one.
struct GradientClip {
  std::optional<double> norm;
  std::optional<double> value;
};

class OptimizerPart {
 public:
  /// References must outlive this object.
  OptimizerPart(const RegisteredOptimizer& registered, FlatParameters& parameters, Collective& collective,
                const GradientClip& clip, const Device& device = {});

  /// Collective. Returns the control word that all ranks have agreed on. With control::kNan or control::kInfinite in it
  /// nothing has changed. Without, the gradients are taken: there are none any more.
  /// Gradients are multiplied with `unscale` first, a power of two.
  [[nodiscard]] std::uint32_t update(std::uint32_t control_word, float unscale = 1);
  /// After such an update: drops the gradients, and counts as updated.
  void skip();
  /// The parameters whose summed gradients are not finite, in words; after such an update.
  [[nodiscard]] std::string not_finite() const;

  /// When the gradients of the last update were summed.
  [[nodiscard]] TimePoint reduced() const { return reduced_; }

  [[nodiscard]] const std::string& name() const { return optimizer_->name(); }
  [[nodiscard]] const PreparedOptimizer& optimizer() const { return *optimizer_; }
  [[nodiscard]] const ParameterRange& range() const { return range_; }
  [[nodiscard]] bool is_updated() const { return is_updated_; }  ///< In the batch in work.
  /// After the last update of a batch, on all ranks.
  void end_batch();

  /// Completed epochs, for a scheduler that counts those.
  void set_epochs_completed(std::int64_t epochs);
  /// For a scheduler that counts the user's calls. Throws where none does.
  void step_scheduler();
  /// The metric of validation that observe() wants after each epoch; empty: none.
  [[nodiscard]] std::string metric() const { return schedules_.empty() ? "" : schedules_.front()->metric(); }
  /// Its value, equal on all ranks; only where there is such a metric.
  void observe(double value);

  /// Its state, all of it as long as the part; origin is range().floats.offset.
  [[nodiscard]] std::vector<OptimizerBuffer> buffers() { return stepper_->buffers(); }
  [[nodiscard]] OptimizerRecord record() const;
  /// Before set_epochs_completed(). Settings that setup() has made otherwise than when the record was written are new
  /// ones, and stay. Throws where the record is damaged, or of other parameters.
  void load(const OptimizerRecord& record);

  /// The same of a record whose buffers are back, in a run that goes on: the counts of updates that belong to them.
  /// Settings, and what schedulers count, stay.
  void load_counts(const OptimizerRecord& record);

  /// Of the first group that has parameters: what the next update is made with, and what the last one was.
  [[nodiscard]] double learning_rate() const;
  [[nodiscard]] double used_rate() const;
  /// Updates that each parameter has had, in the order of the places.
  [[nodiscard]] const std::vector<std::int64_t>& parameter_steps() const { return groups_.steps(); }
  /// In which it was updated, since the run's start.
  [[nodiscard]] std::int64_t batches() const { return batches_; }

 private:
  [[nodiscard]] std::int64_t scheduler_count() const;
  void follow_schedules();
  /// Of each group, as the options are now.
  [[nodiscard]] std::vector<job::Optimizer> settings() const;
  void check(const std::vector<job::Optimizer>& now) const;
  void warn_of_rewritten();
  [[nodiscard]] float clipped_scale(const std::vector<bool>& used, float unscale);
  [[nodiscard]] float clipped_on_device(const std::vector<bool>& used, float scale);
  void load_settings(const OptimizerRecord& record);

  /// Of these gradients, with the range's beginning as the first, as memory of the host.
  [[nodiscard]] std::vector<float> gradients_on_host() const;

  Device device_;
  FlatParameters& parameters_;
  Collective& collective_;
  GradientClip clip_;
  std::shared_ptr<PreparedOptimizer> optimizer_;
  ParameterRange range_;
  std::vector<job::Optimizer> made_;                  // Settings of the groups as setup() has made them.
  std::vector<std::unique_ptr<Schedule>> schedules_;  // Of each group; or none.
  std::string frequency_;                             // What they count.
  std::vector<job::Optimizer> begun_;                 // Settings that the buffers were made for.
  std::unique_ptr<StepOptimizer> stepper_;
  ParameterGroups groups_;
  std::size_t rate_group_;  // Whose rate is told.
  UsedParameters used_;
  std::int64_t batches_ = 0;
  std::int64_t epochs_completed_ = 0;
  std::int64_t scheduler_calls_ = 0;
  std::optional<double> used_rate_;  // Nothing: there was no update yet.
  bool is_updated_ = false;
  bool has_warned_ = false;
  TimePoint reduced_;
};

}  // namespace sgd::worker
