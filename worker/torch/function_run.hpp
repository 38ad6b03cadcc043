#pragma once
// Trains with a function of the user's own: its session, which begins the engine when the first thing needs it, and
// keeps reports and saves of all ranks together.
//
//   prepare ... -> begin -> [ batches -> reports -> saves ]* -> end of the function -> last barrier
//
// What the ranks report or save is agreed: before each, every rank tells what it has come for.

#include <memory>
#include <optional>
#include <string>

#include "sgd/registry.hpp"
#include "sgd/session.hpp"
#include "worker/torch/engine.hpp"

namespace sgd::worker {

class FunctionRun final : public Session, private UserState {
 public:
  /// `function` outlives this object.
  FunctionRun(const EngineSetup& setup, const TrainingFunction& function);

  [[nodiscard]] Outcome run();

  [[nodiscard]] int world_rank() const override { return engine_.world_rank(); }
  [[nodiscard]] int local_rank() const override { return setup_.assignment.local_rank; }
  [[nodiscard]] int world_size() const override { return engine_.world_size(); }
  [[nodiscard]] at::Device get_device() const override { return setup_.device.place(); }
  [[nodiscard]] const nlohmann::json& config() const override { return setup_.job.training->function; }
  [[nodiscard]] const nlohmann::json& training() const override { return training_; }
  [[nodiscard]] Setup& setup() override;
  void enable_reproducibility(std::uint64_t seed) override;
  [[nodiscard]] Step& step() override;
  void step_done() override;
  void report(const nlohmann::json& metrics) override;
  void save_checkpoint(const nlohmann::json& values, const NamedTensors& tensors) override;
  [[nodiscard]] std::optional<SavedCheckpoint> load_checkpoint() override;

 private:
  int begin_epochs() override;
  int next_epoch() override;
  std::optional<Batch> next_train_batch() override;
  void begin_validation(const std::string& name) override;
  std::optional<Batch> next_validation_batch() override;
  std::optional<Batch> next_streamed_validation_batch();

  void begin();
  void agree_on(const std::string& what);
  void begin_epoch();
  void end_validating();
  [[nodiscard]] link::ReportKey next_key();
  void end_train_data();
  void stop_if(Engine::After after) const;

  [[nodiscard]] OperatorState own(int rank) const override;
  [[nodiscard]] OperatorState shared() const override;
  void load(const TrainingState& state, int rank, int world_size) override;
  /// The function does not begin anew: what it has reported and saved stays.
  void roll_back(const TrainingState&, int, int) override {}

  EngineSetup setup_;
  const TrainingFunction& function_;
  nlohmann::json training_;
  Engine engine_;

  bool in_epochs_ = false;          // The function loops over epochs().
  PhaseStream* batches_ = nullptr;  // Of train_data(), until they are done.
  bool has_batch_ = false;          // The turn in work has not ended.
  std::int64_t num_samples_ = 0;    // Of that turn.
  bool is_validating_ = false;      // A loop over batches to validate on has begun, and has not come to its end.
  const Dataset* validated_on_ = nullptr;
  std::optional<Sampler> validation_;
  std::unique_ptr<StreamReader> validation_stream_;  // In its place, where that is a stream.
  std::int64_t validated_ = 0;                       // Position there.
  std::int64_t reports_ = 0;                         // Of the run, where there are no epochs.
  bool has_asked_ = false;                           // For data to train on, in the epoch in work.
  std::int64_t place_ = 0;                           // Of the batch given last in that epoch; 0: none by this process.
  link::ReportKey reported_;                         // The last one, in a loop over epochs.
  std::optional<SavedCheckpoint> saved_;
};

}  // namespace sgd::worker
