#pragma once
// What an operator is: subclass TrainingOperator to train models of your own. RaySGD's
// hooks under RaySGD's names; every one has a default that does the common case (one model, one
// loss, (features, target) batches), so an operator overrides only what differs.
//
// What an operator never does: communicate, save, or stop by itself. An update averages gradients
// over the ranks and applies them; position, metrics and checkpoints follow from BatchStream.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include "sgd/model.hpp"
#include "sgd/setup.hpp"
#include "sgd/step.hpp"

namespace sgd {

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
  /// For that batch's gradients; nullptr where nothing is trained.
  [[nodiscard]] virtual Step* step() = 0;
  /// Completes the batch that next() gave: call it once for each. Saves and stops happen in here.
  virtual void add(const BatchMetrics& metrics) = 0;
};

/// What the worker does for an operator.
class OperatorHost {
 public:
  virtual ~OperatorHost() = default;
  [[nodiscard]] virtual int world_rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;
  [[nodiscard]] virtual int local_rank() const = 0;
  [[nodiscard]] virtual const nlohmann::json& config() const = 0;
  [[nodiscard]] virtual const nlohmann::json& training() const = 0;
  /// As registered in setup().
  [[nodiscard]] virtual const std::vector<RegisteredModel>& models() const = 0;
  /// As registered, else the job's.
  [[nodiscard]] virtual const Loss& loss() const = 0;
  /// Counts into the job's "metrics" of the phase in work.
  virtual void measure(const at::Tensor& output, const at::Tensor& target) = 0;
  /// Where models, batches and outputs are.
  [[nodiscard]] virtual at::Device device() const = 0;
};

class TrainingOperator {
 public:
  virtual ~TrainingOperator() = default;

  /// Registers models and optimizers. Equal on every rank: the generators were seeded alike, and rank 0's weights are
  /// broadcast afterwards. By default the model that the job names.
  virtual void setup(Setup& setup);

  /// One pass over this rank's training batches. Returns further keys for the epoch's report, or an empty object.
  virtual nlohmann::json train_epoch(BatchStream& batches);
  /// Forward of the first model, loss, step.minimize().
  virtual BatchMetrics train_batch(const Batch& batch, Step& step);

  /// One pass over this rank's validation batches, without gradients. Returns further keys for the report, which take
  /// the place of what has been measured under these names; "early_stop" and "reduce_on_plateau" may look at them.
  virtual nlohmann::json validate(BatchStream& batches);
  /// Loss, and accuracy by the largest output; 0 where the output has no classes. Targets that the job's loss leaves
  /// out
  /// ("ignore_index") are left out of both.
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

 protected:
  [[nodiscard]] const Loss& loss() const { return host_->loss(); }
  /// Counts a batch into the metrics that the job names; the default bodies do. Class dimension is 1.
  void measure(const at::Tensor& output, const at::Tensor& target) { host_->measure(output, target); }
  [[nodiscard]] int world_rank() const { return host_->world_rank(); }
  [[nodiscard]] int world_size() const { return host_->world_size(); }
  /// Among the ranks of this node.
  [[nodiscard]] int local_rank() const { return host_->local_rank(); }
  /// Where models and batches are.
  [[nodiscard]] at::Device device() const { return host_->device(); }
  /// The operator's own settings: `training.operator` of the job, with the defaults of its registration.
  [[nodiscard]] const nlohmann::json& config() const { return host_->config(); }
  /// The job's `training` section.
  [[nodiscard]] const nlohmann::json& training() const { return host_->training(); }

 private:
  [[nodiscard]] at::Tensor forward(const Batch& batch);
  void set_training(bool is_training);

  OperatorHost* host_ = nullptr;
};

}  // namespace sgd
