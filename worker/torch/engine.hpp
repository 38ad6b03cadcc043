#pragma once
// What every training of one rank in one generation needs, whoever drives it (operator_run.hpp, function_run.hpp):
// models and optimizers as registered, the group, restore, phases of batches, safe points, reports, saves.
//
//   register -> begin(): group, restore, ready -> [ batches of training -> ... -> batches of validation -> end_epoch()
//   ]*
//                              └ after each batch: agreed bits -> copies in memory, saves, stops
//
// Ranks never act alone: a stop, a save by time, a copy or a NaN is a bit of the control word, and every
// rank acts on it after the same batch, and not before a batch at whose end nobody holds gradients that no
// update has taken. Destroying the object tears the group down, so that the
// process can build another one for its next assignment.

#include <functional>
#include <memory>
#include <optional>

#include "common/job/spec.hpp"
#include "common/messages/link.hpp"
#include "sgd/step.hpp"
#include "worker/collective/collective.hpp"
#include "worker/core/early_stop.hpp"
#include "worker/core/metrics.hpp"
#include "worker/core/phase_profile.hpp"
#include "worker/core/sampler.hpp"
#include "worker/link/client.hpp"
#include "worker/measure/measure_set.hpp"
#include "worker/torch/autocast.hpp"
#include "worker/torch/data_streams.hpp"
#include "worker/torch/datasets.hpp"
#include "worker/torch/device.hpp"
#include "worker/torch/device_usage.hpp"
#include "worker/torch/flat_gradients.hpp"
#include "worker/torch/flat_parameters.hpp"
#include "worker/torch/phase_stream.hpp"
#include "worker/torch/saver.hpp"
#include "worker/torch/setup_record.hpp"
#include "worker/torch/shared_buffers.hpp"
#include "worker/torch/state_mirror.hpp"
#include "worker/torch/stepper.hpp"
#include "worker/torch/sync_batch_norm.hpp"

namespace sgd::worker {

enum class Outcome {
  kDone,     ///< All epochs are trained.
  kStopped,  ///< Asked to stop; state saved if that was wanted.
};

/// What an engine needs from its process; all of it outlives the engine.
struct EngineSetup {
  const job::JobSpec& job;
  const link::Assignment& assignment;
  LinkClient& link;
  const Dataset* dataset = nullptr;  ///< Null: the job has none.
  /// Forms the group once the number of parameters is known; with a device it is given the gradients that lie there.
  std::function<std::unique_ptr<Collective>(std::size_t gradient_count, DeviceGradients* on_device)> form_group;
  std::shared_ptr<Model> initialized_model;  ///< As make_model() would make it, or null.
  int memory_fd = -1;                        ///< The node's memory checkpoint; -1: there is none.
  TimePoint assigned;                        ///< When the assignment came.
  Device device = {};                        ///< Where this rank computes.
};

/// What the user's own code keeps beside models and optimizers.
class UserState {
 public:
  virtual ~UserState() = default;
  [[nodiscard]] virtual OperatorState own(int rank) const = 0;
  /// On rank 0.
  [[nodiscard]] virtual OperatorState shared() const = 0;
  virtual void load(const TrainingState& state, int rank, int world_size) = 0;
  /// The same in a run that goes on.
  virtual void roll_back(const TrainingState& state, int rank, int world_size) { load(state, rank, world_size); }
};

class Engine final : public Step, private StateSource {
 public:
  enum class After { kGoOn, kStop };

  /// `user` outlives this object.
  Engine(const EngineSetup& setup, UserState& user);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Where models and optimizers are registered before begin().
  [[nodiscard]] SetupRecord& record() { return record_; }
  [[nodiscard]] const SetupRecord& record() const { return record_; }

  /// Collective: forms the group and restores. `may_be_empty`: there may be no model.
  void begin(bool may_be_empty = false);
  [[nodiscard]] bool has_begun() const { return saver_ != nullptr; }

  [[nodiscard]] const Position& position() const { return position_; }
  [[nodiscard]] std::int64_t steps() const { return stepper_->steps(); }

  /// The batches of the phase that the position is in, from there on.
  [[nodiscard]] PhaseStream& begin_training();
  [[nodiscard]] PhaseStream& begin_validation();
  /// Whether there is anything to validate on.
  [[nodiscard]] bool has_validation() const;
  /// Throws, naming it, where there is not and something of the job is judged by validation.
  void check_validation() const;
  /// In place of training: to the validation of the weights as they are, under the epoch that made them.
  void go_to_validation();
  /// Counts a batch into the job's metrics of the phase in work.
  void measure(const at::Tensor& output, const at::Tensor& target);
  /// Collective: what the phase has measured, with further keys.
  [[nodiscard]] nlohmann::json measured(const nlohmann::json& further);
  /// Where validation begins and ends, in a loop that is not the engine's.
  void set_validating(bool is_validating);
  void report(const link::ReportKey& key, nlohmann::json metrics);
  /// Of this rank, for the run's summary; null: there is none. Throws where it is too long.
  void send_result(nlohmann::json result);
  /// All batches of it are done.
  void end_training();
  void end_validation();
  /// In place of it, after an epoch that is not validated.
  void skip_validation();
  /// Collective, at a validation's end: why training ends after this epoch; empty: it does not.
  [[nodiscard]] std::string stops_early();
  /// Whether all epochs are trained, or as many as early stopping leaves.
  [[nodiscard]] bool is_over() const;
  /// Collective: compares the weights, saves, and says whether training goes on.
  [[nodiscard]] After end_epoch();
  /// Whether the state may be copied and saved wherever it is due. Not where the user's code keeps its place by itself:
  /// what it has saved last and a newer state do not belong together. save_now() saves all the same.
  void set_may_save(bool may_save) { may_save_ = may_save; }
  /// Collective: saves now, whether anything has changed or not, and waits for the disk. That it has no room is told.
  /// Where the group is asked to stop, or to leave at a checkpoint, training ends here.
  [[nodiscard]] After save_now();
  /// Collective: a batch is done, of a phase or of a loop with data of its own.
  [[nodiscard]] After end_batch(std::int64_t num_samples);
  /// Collective: agrees on what was asked from outside, between batches.
  [[nodiscard]] After safe_point();
  /// Collective: the last save, if all is `done`, and the last barrier.
  void finish(bool done);
  [[nodiscard]] Collective& collective() { return *collective_; }

  [[nodiscard]] const BatchInfo& info() const override { return stream_ ? stream_->current() : no_batch_; }
  void backward(const at::Tensor& loss) override;
  void backward(const at::Tensor& loss, const torch::optim::Optimizer& only) override;
  void update(torch::optim::Optimizer& optimizer) override;
  void minimize(const at::Tensor& loss) override;
  void step_scheduler() override;
  void step_scheduler(const torch::optim::Optimizer& optimizer) override;

  /// Whose part of a stream this rank reads.
  [[nodiscard]] StreamPlace stream_place(Split split) const;
  [[nodiscard]] int world_rank() const { return setup_.assignment.rank; }
  [[nodiscard]] int world_size() const { return setup_.assignment.world_size; }
  [[nodiscard]] int local_rank() const { return setup_.assignment.local_rank; }
  [[nodiscard]] const Device& device() const { return setup_.device; }

 private:
  /// At its end the link thread aborts nobody any more.
  struct AbortsNobody {
    LinkClient& link;
    ~AbortsNobody() { link.on_abort(nullptr); }
  };

  [[nodiscard]] std::shared_ptr<Model> job_model();
  [[nodiscard]] const Dataset& dataset() const;
  [[nodiscard]] Restored restored_from(const link::Assignment& assignment, int memory_fd);
  [[nodiscard]] std::shared_ptr<PassBatches> batches_of(Split split);
  void restore();
  void roll_back(const std::string& fault);
  void begin_work();
  void announce_ready(const Restored& restored);
  [[nodiscard]] double agreed_metric(const std::string& name, const char* key);
  [[nodiscard]] std::vector<std::string> measured_names() const;
  void backward(const at::Tensor& loss, const OptimizerPart* only, double weight);
  void update(OptimizerPart& part);
  bool after_training_batch(const BatchMetrics& metrics);
  bool after_validation_batch(const BatchMetrics& metrics);
  [[nodiscard]] bool is_pending() const;
  bool postpone(std::uint32_t agreed);
  void drop_pending();
  void load_measures(const TrainingState& state);
  [[nodiscard]] MeasuredPhase phase() const;
  [[nodiscard]] nlohmann::ordered_json profiled();
  void publish(std::int64_t num_samples);
  void publish_usage(Progress& progress);
  void compare_weights();
  void move_to_device();
  [[nodiscard]] std::uint32_t control_word() const;
  [[nodiscard]] std::int64_t batch_size() const;
  void note_leaving(std::uint32_t agreed);
  /// Saves and leaves as the agreed bits say; `leave`: this is the place to leave at. False: training ends here.
  bool act_on(std::uint32_t agreed, bool leave, bool is_due = false);
  /// Of the state as it is, in a report or a checkpoint.
  [[nodiscard]] std::int64_t step_to_save() const;
  /// Collective.
  void save(unsigned targets);
  void send(const link::FromWorker& message);
  [[nodiscard]] nlohmann::json made_by() const;
  [[nodiscard]] int memory_fd() const;

  [[nodiscard]] RankMessage own_message() override;
  [[nodiscard]] TrainingState state(std::vector<RankMessage> told) override;
  [[nodiscard]] StateTensors tensors() override;
  [[nodiscard]] StateMirror* mirror() override { return mirror_.get(); }
  [[nodiscard]] MemoryPoint point() const override;

  EngineSetup setup_;
  UserState& user_;
  const job::Training& training_;
  std::shared_ptr<Model> initialized_model_;  // Given out once.
  Autocast autocast_;
  SetupRecord record_;
  NamedModels models_;
  // The gradient views point into the collective's memory, or into the device's: both are destroyed after them.
  std::unique_ptr<FlatGradients> gradients_;  // With a device.
  std::unique_ptr<Collective> collective_;
  AbortsNobody link_forgets_;  // Before the collective goes, also when the constructor throws.
  std::unique_ptr<FlatParameters> parameters_;
  std::unique_ptr<SharedBuffers> buffers_;
  std::unique_ptr<SyncBatchNorm> sync_batch_norm_;
  std::unique_ptr<Stepper> stepper_;
  std::unique_ptr<DeviceMonitor> monitor_;
  TimePoint usage_due_;                  // Of what it tells beside reports.
  std::unique_ptr<StateMirror> mirror_;  // With a device; used by the saver's thread.
  std::unique_ptr<Saver> saver_;
  std::unique_ptr<DataStreams> streams_;  // Null: there is no data.

  Position position_;
  MetricsAccumulator metrics_;                          // Of the phase in work.
  MeasureSet measures_;                                 // The job's metrics of that phase.
  nlohmann::json measured_ = nlohmann::json::object();  // Of the phase that has ended, as it is reported.
  PhaseProfile profile_;
  TimePoint phase_began_;
  Duration gradient_time_{};  // Of backward passes since the last update.
  std::optional<EarlyStop> early_stop_;
  BatchInfo no_batch_;                   // Of a loop with data of its own.
  std::unique_ptr<PhaseStream> stream_;  // Of that phase.
  std::int64_t saved_step_ = -1;         // Of the newest checkpoint; -1: there is none.
  std::uint32_t agreed_ = 0;             // Bits seen since the last batch was added.
  std::uint32_t postponed_ = 0;          // Bits that wait for a batch at whose end nobody holds gradients.
  bool is_postponed_due_ = false;
  int pending_batches_ = 0;           // In a row at whose end somebody held some.
  std::int64_t rollbacks_ = 0;        // Not told yet.
  std::int64_t accumulated_ = 0;      // Losses of minimize() since its last update.
  bool leave_at_epoch_ = false;       // kStopAtEpoch was agreed.
  bool leave_at_checkpoint_ = false;  // kStopAtCheckpoint was agreed.
  bool may_save_ = true;
  bool first_step_sent_ = false;
};

}  // namespace sgd::worker
