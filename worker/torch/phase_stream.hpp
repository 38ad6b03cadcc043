#pragma once
// This rank's batches of one phase of one epoch, from a position to the phase's end, and the
// metrics of those done. It keeps the position right: a batch counts as consumed when it has been
// added, and only then may a save or a stop happen. A phase ends with its pass over the data, or
// after a number of batches: then a pass may go on in the next epoch, and end within one.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "sgd/training_operator.hpp"
#include "worker/core/metrics.hpp"
#include "worker/core/sampler.hpp"
#include "worker/core/step_timer.hpp"
#include "worker/torch/device.hpp"
#include "worker/torch/loader.hpp"

namespace sgd::worker {

struct PhaseSettings {
  Split split = Split::kTrain;
  int epoch = 1;
  int pass = 1;                  ///< Over the split's data, from 1: it has an order, and draws of its own.
  std::int64_t batches = 0;      ///< Done in this phase before.
  std::int64_t batches_max = 0;  ///< 0: the phase ends with the pass.
  int rank = 0;
  std::int64_t batch_size = 1;                           ///< Of one rank.
  std::int64_t consumed = 0;                             ///< Where the phase begins in this process.
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

  /// The order of a pass.
  using Order = std::function<Sampler(int pass)>;

  PhaseStream(const PhaseSettings& settings, Order order, const Dataset& dataset, MetricsAccumulator& metrics,
              BeforeBatch before, AfterBatch after);

  std::optional<Batch> next() override;
  [[nodiscard]] BatchInfo info() const override { return info_; }
  [[nodiscard]] const BatchInfo& current() const { return info_; }
  /// When that batch was given.
  [[nodiscard]] TimePoint given() const { return given_; }
  [[nodiscard]] Step* step() override { return settings_.step; }
  void add(const BatchMetrics& metrics) override;

  [[nodiscard]] int pass() const { return pass_; }
  [[nodiscard]] std::int64_t consumed() const { return consumed_; }
  [[nodiscard]] std::int64_t batches() const { return batches_; }
  [[nodiscard]] bool is_pass_done() const { return samples_left(consumed_) == 0; }
  [[nodiscard]] bool interrupted() const { return interrupted_; }
  [[nodiscard]] const StepTimer& timer() const { return timer_; }
  /// Without the time inside collectives.
  [[nodiscard]] const StepTimer& own_timer() const { return own_timer_; }
  /// Samples of this rank per second, of the batches done in this process.
  [[nodiscard]] double samples_per_s() const;

 private:
  /// Of this rank's next batch.
  [[nodiscard]] std::int64_t samples_left(std::int64_t consumed) const {
    return sampler_.batch_length(consumed, settings_.batch_size);
  }
  [[nodiscard]] bool ends_at(std::int64_t batches, std::int64_t consumed) const;
  void begin_pass();
  void begin_loading();

  PhaseSettings settings_;
  Order order_;
  Sampler sampler_;
  const Dataset& dataset_;
  MetricsAccumulator& metrics_;
  BeforeBatch before_;
  AfterBatch after_;

  int pass_;
  std::int64_t consumed_;
  std::int64_t batches_;
  std::unique_ptr<Loader> loader_;
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
