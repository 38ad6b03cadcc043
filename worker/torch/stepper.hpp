#pragma once
// The updates of one batch over all optimizers:
//   loss ─► backward ─► gradients add up in their places ─► update of one optimizer ─► end of the batch
// Knows nothing of epochs' contents, saves and stops: the caller gets the agreed control word and acts on it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "worker/collective/collective.hpp"
#include "worker/core/loss_scale.hpp"
#include "worker/torch/flat_parameters.hpp"
#include "worker/torch/optimizer_part.hpp"

namespace sgd::worker {

/// What is done with gradients.
struct StepRules {
  std::string on_nan = "stop";  ///< As in the job.
  bool scales_losses = false;   ///< For half precision.
};

class Stepper {
 public:
  /// References must outlive this object; the gradients of `parameters` become views of the collective's buffer.
  Stepper(FlatParameters& parameters, Collective& collective, const std::vector<RegisteredOptimizer>& optimizers,
          const GradientClip& clip, const StepRules& rules = {}, const Device& device = {});

  /// Adds the gradients of `loss`, times `weight`; with `only` to its parameters alone. Not collective.
  void backward(const at::Tensor& loss, const OptimizerPart* only = nullptr, double weight = 1);

  /// Collective. Returns the control word agreed by all ranks. When some rank's loss since the last update is not
  /// finite, every rank throws an error that names the step and those ranks, as in fail(); when only the sum of some
  /// gradient is not, one that names the step and the parameters. Then no weight changes. With `on_nan` "skip" the
  /// gradients are dropped instead, and the update counts as made; with "rollback" take_fault() tells of it, too. Where
  /// the scale of losses may have made gradients infinite, the update is skipped, and the scale falls.
  std::uint32_t update(OptimizerPart& part, std::uint32_t control_word);

  /// Ends the batch on every rank: it is a step if some optimizer was updated in it. What those that were have got of
  /// gradients since is dropped; whether others still hold some, which the next update takes, is_pending() tells.
  void end_batch();
  /// Whether some optimizer was updated in the batch in work; the same on every rank.
  [[nodiscard]] bool is_updated() const;
  /// Whether all were. Nobody holds gradients then.
  [[nodiscard]] bool all_updated() const;
  /// Whether this rank holds gradients of an optimizer that was not updated in the batch in work.
  [[nodiscard]] bool is_pending() const;
  /// Drops them, and names the optimizers; empty: there were none.
  [[nodiscard]] std::string drop_pending();

  /// Batches with an update since the run's start, in whatever processes they were made.
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }
  void set_epochs_completed(std::int64_t epochs);
  [[nodiscard]] double last_loss() const { return last_loss_; }
  /// Updates left out since they were last taken.
  [[nodiscard]] std::int64_t skipped() const { return skipped_; }
  [[nodiscard]] std::int64_t take_skipped() { return std::exchange(skipped_, 0); }
  /// As a checkpoint has it.
  void load_skipped(std::int64_t skipped) { skipped_ = skipped; }
  /// With "rollback": what was not finite in the batch that has ended, the same on every rank; empty: nothing.
  [[nodiscard]] std::string take_fault() { return std::exchange(fault_, std::string()); }
  /// Ends this rank with such a text: with an error of its own, or, where only losses of other ranks were not finite,
  /// with PeerFault after they have ended, so that the launcher takes one of those for the cause. Nobody ends before
  /// them: what is saved meanwhile may hold them up, and a run whose cause is not known is tried again.
  [[noreturn]] void fail(const std::string& fault);
  /// After such a batch, when tensors are those of a checkpoint again. Counts of steps, and schedulers, go on.
  void roll_back(const std::vector<OptimizerRecord>& records);

  /// Null where losses are not scaled.
  [[nodiscard]] nlohmann::json loss_scale() const { return scale_ ? scale_->state() : nlohmann::json(); }
  /// As a checkpoint has it. Throws where that is damaged.
  void load_loss_scale(const nlohmann::json& state);

  [[nodiscard]] std::vector<std::unique_ptr<OptimizerPart>>& parts() { return parts_; }
  [[nodiscard]] const std::vector<std::unique_ptr<OptimizerPart>>& parts() const { return parts_; }
  /// The part that the user's object stands for. Throws where it is none of them.
  [[nodiscard]] OptimizerPart& part_of(const torch::optim::Optimizer& optimizer);
  /// The only one. Throws, naming `what`, where there are several.
  [[nodiscard]] OptimizerPart& only_part(const char* what);

  [[nodiscard]] std::vector<OptimizerKind> kinds() const;
  [[nodiscard]] std::vector<OptimizerRecord> records() const;
  /// Of a checkpoint with as many steps. Throws where there are others than those of the job.
  void load(const std::vector<OptimizerRecord>& records, std::int64_t steps);

 private:
  void run_backward(const at::Tensor& loss, const OptimizerPart* only, double weight);
  /// What is not finite, where, and how to go on. Collective.
  [[nodiscard]] std::string fault_of(std::uint32_t agreed, bool is_own_finite, const OptimizerPart& part);

  FlatParameters& parameters_;
  Collective& collective_;
  std::vector<std::unique_ptr<OptimizerPart>> parts_;
  std::int64_t steps_ = 0;
  std::int64_t skipped_ = 0;
  double last_loss_ = 0;
  bool is_finite_ = true;  // All losses since the last update.
  Device device_;
  std::string on_nan_;
  std::string fault_;
  bool is_peers_fault_ = false;  // It was so on other ranks alone.
  std::optional<LossScale> scale_;
  bool is_overflow_ = false;  // In the batch in work.
};

}  // namespace sgd::worker
