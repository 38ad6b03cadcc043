#pragma once
// The training run of one rank in one generation: epochs of training and validation from where
// the checkpoint left off, reports, saves, and the agreed ways to end early.
//
//   restore -> ready -> [ train phase -> report -> validate phase -> report -> weights equal? -> save ]* -> barrier
//                               └ copies in memory after batches, as often as they cost little
//
// Ranks never act alone: a stop, a save by time, a copy or a NaN is a bit of the control word, and every
// rank acts on it after the same batch. Destroying the object tears the group down, so that the
// process can build another one for its next assignment.

#include <functional>
#include <memory>
#include <optional>

#include "common/job/spec.hpp"
#include "common/messages/link.hpp"
#include "sgd/training_operator.hpp"
#include "worker/collective/collective.hpp"
#include "worker/core/metrics.hpp"
#include "worker/link/client.hpp"
#include "worker/torch/checkpoint_state.hpp"
#include "worker/torch/checkpoint_writer.hpp"
#include "worker/torch/datasets.hpp"
#include "worker/torch/flat_parameters.hpp"
#include "worker/torch/memory_saver.hpp"
#include "worker/torch/phase_stream.hpp"
#include "worker/torch/rank_message.hpp"
#include "worker/torch/restorer.hpp"
#include "worker/torch/shared_buffers.hpp"
#include "worker/torch/state_parts.hpp"
#include "worker/torch/stepper.hpp"

namespace sgd::worker {

enum class Outcome {
  kDone,     ///< All epochs are trained.
  kStopped,  ///< Asked to stop; state saved if that was wanted.
};

/// What a trainer needs from its process; all of it outlives the trainer.
struct TrainerSetup {
  const job::JobSpec& job;
  const link::Assignment& assignment;
  LinkClient& link;
  const Dataset& dataset;
  TrainingOperator& training_operator;
  /// Forms the group once the number of parameters is known.
  std::function<std::unique_ptr<Collective>(std::size_t gradient_count)> form_group;
  std::shared_ptr<Model> initialized_model;  ///< As make_model() would make it, or null.
  int memory_fd = -1;                        ///< The node's memory checkpoint; -1: there is none.
  TimePoint assigned;                        ///< When the assignment came.
};

class Trainer final : public OperatorHost {
 public:
  explicit Trainer(const TrainerSetup& setup);

  [[nodiscard]] Outcome run();

  void step(const at::Tensor& loss) override;
  void step_scheduler() override;
  [[nodiscard]] int world_rank() const override { return setup_.assignment.rank; }
  [[nodiscard]] int world_size() const override { return setup_.assignment.world_size; }
  [[nodiscard]] const nlohmann::json& config() const override { return training_.training_operator; }
  [[nodiscard]] const nlohmann::json& training() const override { return training_config_; }
  [[nodiscard]] std::shared_ptr<Model> make_model() const override;
  [[nodiscard]] Loss make_loss() const override;

 private:
  enum class After { kGoOn, kStop };
  /// At its end the link thread aborts nobody any more.
  struct AbortsNobody {
    LinkClient& link;
    ~AbortsNobody() { link.on_abort(nullptr); }
  };
  /// Where a save goes; bits.
  /// kIfFree: not on disk when the save before is still being written (a slow disk never holds training).
  enum Target : unsigned { kDisk = 1, kMemory = 2, kIfFree = 4 };

  void restore();
  void begin_work();
  void announce_ready(const Restored& restored);
  After train_phase();
  After validate_phase();
  void show_metric_to_scheduler();
  After end_epoch();
  bool after_training_batch(const BatchMetrics& metrics, const PhaseStream& stream);
  bool after_validation_batch(const BatchMetrics& metrics, const PhaseStream& stream);
  void publish(const BatchMetrics& metrics);
  void report(const PhaseStream& stream, const nlohmann::json& further);
  void compare_weights();
  [[nodiscard]] std::uint32_t control_word() const;
  [[nodiscard]] std::int64_t batch_size() const;

  /// Saves and leaves as the agreed bits say; `leave`: this is the place to leave at. False: training ends here.
  bool act_on(std::uint32_t agreed, bool leave, bool is_due = false);
  void save(unsigned targets);
  [[nodiscard]] std::vector<RankMessage> tell_all(unsigned targets);
  [[nodiscard]] unsigned possible(unsigned targets, const std::vector<RankMessage>& told);
  /// Waits for the write of the last save; whether it is on disk, as all ranks agree.
  bool on_disk();
  [[nodiscard]] bool saves_by_itself() const;
  [[nodiscard]] bool steps_due() const;
  [[nodiscard]] TrainingState state(std::vector<RankMessage> told) const;
  [[nodiscard]] nlohmann::json made_by() const;
  [[nodiscard]] MemoryPoint point() const;
  [[nodiscard]] StateParts parts();
  [[nodiscard]] int memory_fd() const;
  void send(const link::FromWorker& message);

  TrainerSetup setup_;
  const job::Training& training_;
  nlohmann::json training_config_;
  mutable std::shared_ptr<Model> initialized_model_;  // Given out once.
  // The gradient views point into the collective's memory: it is destroyed after them.
  std::unique_ptr<Collective> collective_;
  AbortsNobody link_forgets_;  // Before the collective goes, also when the constructor throws.
  std::unique_ptr<FlatParameters> parameters_;
  std::unique_ptr<SharedBuffers> buffers_;
  std::unique_ptr<Stepper> stepper_;
  std::unique_ptr<CheckpointWriter> writer_;  // On rank 0 only.
  std::unique_ptr<MemorySaver> memory_;       // On local rank 0, where there are memory checkpoints.

  Position position_;
  MetricsAccumulator metrics_;        // Of the phase in work.
  std::uint32_t agreed_ = 0;          // Bits seen since the last batch was added.
  bool agreed_this_batch_ = false;    // The batch had a collective with a control word.
  bool leave_at_epoch_ = false;       // kStopAtEpoch was agreed.
  bool leave_at_checkpoint_ = false;  // kStopAtCheckpoint was agreed.
  bool first_step_sent_ = false;
  std::int64_t saved_step_ = -1;  // Step and place of the last save, so that none is made twice.
  Position saved_position_;
  TimePoint last_save_;
};

}  // namespace sgd::worker
