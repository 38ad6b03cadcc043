#pragma once
// This rank's batches of one phase of one epoch, from a position to the phase's end, and the
// metrics of those done. It keeps the position right: a batch counts as consumed when it has been
// added, and only then may a save or a stop happen. A phase ends with its pass over the data, or
// after a number of batches: then a pass may go on in the next epoch, and end within one. Where a rank's part of the
// data is over before that of others, it takes part in what they do after their batches.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "sgd/training_operator.hpp"
#include "worker/core/metrics.hpp"
#include "worker/core/step_timer.hpp"
#include "worker/torch/device.hpp"
#include "worker/torch/pass_batches.hpp"

namespace sgd::worker {

struct PhaseSettings {
  int epoch = 1;
  std::int64_t batches = 0;                              ///< Done in this phase before.
  std::int64_t batches_max = 0;                          ///< 0: the phase ends with the pass.
  const std::atomic<std::int64_t>* waited_ns = nullptr;  ///< Inside collectives so far; null: there are none.
  Step* step = nullptr;                                  ///< For the gradients of a batch; null: nothing is trained.
  Device device = {};                                    ///< Where batches go.
  bool skips_not_finite = false;                         ///< Values of metrics that are NaN or infinite do not count.
};

class PhaseStream final : public BatchStream {
 public:
  /// Called before a batch is given; returns the run's step count for BatchInfo.
  using BeforeBatch = std::function<std::int64_t()>;
  /// Called after a batch was added; false ends the stream inside the phase.
  using AfterBatch = std::function<bool(const BatchMetrics&)>;

  /// `source` stands where the phase begins in this process.
  PhaseStream(const PhaseSettings& settings, std::shared_ptr<PassBatches> source, MetricsAccumulator& metrics,
              BeforeBatch before, AfterBatch after);

  std::optional<Batch> next() override;
  [[nodiscard]] BatchInfo info() const override { return info_; }
  [[nodiscard]] const BatchInfo& current() const { return info_; }
  /// When that batch was given.
  [[nodiscard]] TimePoint given() const { return given_; }
  [[nodiscard]] Step* step() override { return settings_.step; }
  void add(const BatchMetrics& metrics) override;
  /// Throws where the last batch was left without add(), which `who` owes.
  void check_completed(const char* who) const;

  [[nodiscard]] int pass() const { return source_->pass(); }
  [[nodiscard]] std::int64_t consumed() const { return source_->consumed(); }
  [[nodiscard]] std::int64_t batches() const { return batches_; }
  [[nodiscard]] bool is_pass_done() const { return source_->is_pass_done(); }
  [[nodiscard]] bool interrupted() const { return interrupted_; }
  [[nodiscard]] const StepTimer& timer() const { return timer_; }
  /// Without the time inside collectives.
  [[nodiscard]] const StepTimer& own_timer() const { return own_timer_; }
  /// Samples of this rank per second, of the batches done in this process.
  [[nodiscard]] double samples_per_s() const;

 private:
  [[nodiscard]] bool ends_after(std::int64_t batches) const {
    return settings_.batches_max > 0 && batches >= settings_.batches_max;
  }
  [[nodiscard]] Batch give();
  void idle();

  PhaseSettings settings_;
  std::shared_ptr<PassBatches> source_;
  MetricsAccumulator& metrics_;
  BeforeBatch before_;
  AfterBatch after_;

  std::int64_t batches_;
  bool pending_ = false;  // next() gave a batch that add() has not completed.
  bool interrupted_ = false;
  BatchInfo info_;
  std::vector<MetricValue> values_;
  [[nodiscard]] Duration waited() const;

  StepTimer timer_;
  StepTimer own_timer_;
  std::int64_t samples_ = 0;
  TimePoint started_;
  TimePoint batch_started_;
  TimePoint given_;
  Duration waited_before_;
};

}  // namespace sgd::worker
