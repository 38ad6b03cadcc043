#pragma once
// What may be done with the gradients of one batch.
//
//   step.minimize(loss);                          one optimizer: backward, mean over all ranks, update
//
//   step.backward(loss_d); step.update(*discriminator_optimizer_);      several: each for itself
//   step.backward(loss_g, *generator_optimizer_); step.update(*generator_optimizer_);
//
// Gradients add up over calls of backward() until an update has taken them. At the end of a batch those of every
// optimizer that was updated in it are dropped, so nothing is left of what other losses added; those of the others stay
// for the next batch. While any stay, nothing is saved and nobody leaves: a checkpoint holds no half of a step.
//
// Each rank must make the same updates in the same order.

#include <torch/torch.h>

#include "sgd/model.hpp"

namespace sgd {

class Step {
 public:
  virtual ~Step() = default;

  [[nodiscard]] virtual const BatchInfo& info() const = 0;

  /// Adds the gradients of `loss` to those of all registered parameters. It may be called more than once. A loss that
  /// is not finite ends the run in the next update, which names the rank. Until the update they are this rank's own,
  /// where DistributedDataParallel's are the mean already: "gradient_clip" of the job clips the mean, in the update; a
  /// torch::nn::utils::clip_grad_norm_() before it clips each rank's own, of which the CPU's ranks warn.
  virtual void backward(const at::Tensor& loss) = 0;
  /// Of the parameters of `only` alone, which is cheaper.
  virtual void backward(const at::Tensor& loss, const torch::optim::Optimizer& only) = 0;

  /// The mean of the gradients over all ranks, then one update. Collective. The same as step() of the optimizer.
  virtual void update(torch::optim::Optimizer& optimizer) = 0;

  /// backward() and update() of the only optimizer. With "gradient_accumulation": N in the job each loss counts 1/N,
  /// and only every N-th call, and that of an epoch's last batch, updates.
  virtual void minimize(const at::Tensor& loss) = 0;

  /// One more for the job's scheduler of `"frequency": "manual"`: on every rank at the same place.
  virtual void step_scheduler() = 0;
  /// The same for one that setup.scheduler() gave to `optimizer`.
  virtual void step_scheduler(const torch::optim::Optimizer& optimizer) = 0;
};

}  // namespace sgd
