#pragma once
// What an operator is: subclass TrainingOperator to train a model of your own. RaySGD's
// hooks under RaySGD's names; every one has a default that does the common case (one model, one
// loss, (features, target) batches), so an operator overrides only what differs.
//
// What an operator never does: communicate, save, or stop by itself. step() averages gradients
// over the ranks and applies them; position, metrics and checkpoints follow from BatchStream.

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>
#include <nlohmann/json.hpp>

namespace sgd {

/// A network from one tensor to one tensor, as the built-in ones are. Parameters are found by their registered names.
class Model : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& features) = 0;
};

using NamedTensors = std::map<std::string, at::Tensor>;
using Loss = std::function<at::Tensor(const at::Tensor& output, const at::Tensor& target)>;

struct Batch {
  at::Tensor features;
  at::Tensor target;
};

struct BatchInfo {
  int epoch = 0;                 ///< From 1.
  std::int64_t batch_index = 0;  ///< In this rank's epoch, from 0.
  std::int64_t global_step = 0;  ///< Optimizer steps done since the run's start.
};

/// What one batch measured; a phase's report holds the mean weighted by num_samples, and the last value.
struct BatchMetrics {
  std::int64_t num_samples = 1;
  std::vector<std::pair<std::string, double>> values;
};

/// This rank's batches of one phase.
class BatchStream {
 public:
  virtual ~BatchStream() = default;
  /// The next batch; nothing at the phase's end, or when the run stops inside the phase.
  virtual std::optional<Batch> next() = 0;
  [[nodiscard]] virtual BatchInfo info() const = 0;
  /// Completes the batch that next() gave: call it once for each. Saves and stops happen in here.
  virtual void add(const BatchMetrics& metrics) = 0;
};

/// What the worker does for an operator.
class OperatorHost {
 public:
  virtual ~OperatorHost() = default;
  virtual void step(const at::Tensor& loss) = 0;
  virtual void step_scheduler() = 0;
  [[nodiscard]] virtual int world_rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;
  [[nodiscard]] virtual const nlohmann::json& config() const = 0;
  [[nodiscard]] virtual const nlohmann::json& training() const = 0;
  /// The model and the loss that the job names.
  [[nodiscard]] virtual std::shared_ptr<Model> make_model() const = 0;
  [[nodiscard]] virtual Loss make_loss() const = 0;
};

class TrainingOperator {
 public:
  virtual ~TrainingOperator() = default;

  /// Makes model and loss, and calls register_model() and register_loss(). Equal on every rank: the generators
  /// were seeded alike, and rank 0's weights are broadcast afterwards.
  virtual void setup();

  /// One pass over this rank's training batches. Returns further keys for the epoch's report, or an empty object.
  virtual nlohmann::json train_epoch(BatchStream& batches);
  /// Forward, loss, step().
  virtual BatchMetrics train_batch(const Batch& batch, const BatchInfo& info);

  /// One pass over this rank's validation batches, without gradients.
  virtual nlohmann::json validate(BatchStream& batches);
  /// Loss, and accuracy by the largest output; 0 where the output has no classes.
  virtual BatchMetrics validate_batch(const Batch& batch, const BatchInfo& info);

  // State of the operator's own. Every save calls the three functions that give it, between two batches; a rank that
  // goes on from a checkpoint, in memory or on disk, gets it back after setup(), before its first batch:
  // load_shared_state(), load_states(), load_states_tensors(). What comes back is equal to the bit, so numbers that
  // JSON cannot hold (NaN, infinities) are an error when they are saved.
  //
  // Each rank has a state and tensors of its own. In a group of W ranks, rank r gets those of the saved ranks r, r + W,
  // r + 2W, ... as far as there are: its own alone when the number of ranks is the same, nothing on the new ranks of a
  // group that has grown. Every saved state is given to one rank.
  //
  // A checkpoint of a worker that kept rank 0's state alone gives that to load_shared_state() and, as before, to
  // load_states() on every rank; an operator that loads either goes on with it.

  /// This rank's own. At most 64 MiB as JSON text; what is large belongs into state_tensors().
  [[nodiscard]] virtual nlohmann::json state() const { return nlohmann::json::object(); }
  /// What state() gave on this rank.
  virtual void load_state(const nlohmann::json& state) { (void)state; }
  /// The states that this rank gets, by saved rank. Override it to join several.
  virtual void load_states(std::vector<nlohmann::json> states) {
    if (!states.empty()) load_state(states.front());
  }

  /// This rank's own tensors by name, of any shape; dense, and of a type that safetensors files have. They come back on
  /// the CPU, contiguous. Together with state() at most 1 GiB; those of all ranks pass through every rank's memory.
  [[nodiscard]] virtual NamedTensors state_tensors() const { return {}; }
  virtual void load_state_tensors(NamedTensors tensors) { (void)tensors; }
  /// As load_states().
  virtual void load_states_tensors(std::vector<NamedTensors> tensors) {
    if (!tensors.empty()) load_state_tensors(std::move(tensors.front()));
  }

  /// What is equal on all ranks, at any number of them: rank 0's is kept, and every rank gets it back.
  [[nodiscard]] virtual nlohmann::json shared_state() const { return nlohmann::json::object(); }
  virtual void load_shared_state(const nlohmann::json& state) { (void)state; }

  void attach(OperatorHost& host) { host_ = &host; }
  /// What was registered; null before setup().
  [[nodiscard]] const std::shared_ptr<torch::nn::Module>& model() const { return model_; }

 protected:
  /// Any module. The default train_batch() and validate_batch() call its forward(features), so one without such a
  /// member needs both overridden. Returns it.
  template <class Module>
  std::shared_ptr<Module> register_model(std::shared_ptr<Module> model) {
    model_ = model;
    if constexpr (requires(const at::Tensor& features) {
                    { model->forward(features) } -> std::convertible_to<at::Tensor>;
                  })
      forward_ = [raw = model.get()](const at::Tensor& features) { return raw->forward(features); };
    else
      forward_ = nullptr;
    return model;
  }
  void register_loss(Loss loss) { loss_ = std::move(loss); }

  /// Backward from `loss`, mean of the gradients over all ranks, one optimizer step. Collective.
  void step(const at::Tensor& loss) { host_->step(loss); }
  /// One more for a scheduler of `"frequency": "manual"`: on every rank at the same place, between next() and add(), so
  /// that a checkpoint holds it.
  void step_scheduler() { host_->step_scheduler(); }
  [[nodiscard]] const Loss& loss() const { return loss_; }
  [[nodiscard]] int world_rank() const { return host_->world_rank(); }
  [[nodiscard]] int world_size() const { return host_->world_size(); }
  /// The operator's own settings: `training.operator` of the job, with the defaults of its registration.
  [[nodiscard]] const nlohmann::json& config() const { return host_->config(); }
  /// The job's `training` section.
  [[nodiscard]] const nlohmann::json& training() const { return host_->training(); }
  /// The model that the job names.
  [[nodiscard]] std::shared_ptr<Model> make_model() const { return host_->make_model(); }
  [[nodiscard]] Loss make_loss() const { return host_->make_loss(); }

 private:
  [[nodiscard]] at::Tensor forward(const at::Tensor& features);

  OperatorHost* host_ = nullptr;
  std::shared_ptr<torch::nn::Module> model_;
  std::function<at::Tensor(const at::Tensor&)> forward_;
  Loss loss_;
};

}  // namespace sgd
