#pragma once
// Batches of a data set whose samples have numbers: a sampler says which, a loader makes them.

#include <functional>
#include <memory>

#include "worker/core/sampler.hpp"
#include "worker/torch/loader.hpp"
#include "worker/torch/pass_batches.hpp"

namespace sgd::worker {

class IndexedBatches final : public PassBatches {
 public:
  /// The order of a pass.
  using Order = std::function<Sampler(int pass)>;

  /// From `phase`'s place on; its epoch is the pass. `dataset` outlives it.
  IndexedBatches(const LoaderPhase& phase, Order order, const Dataset& dataset);

  [[nodiscard]] Next look(bool /*wants_last*/) override { return is_pass_done() ? Next::kEnd : Next::kBatch; }
  [[nodiscard]] bool is_last() const override { return samples_left(advanced()) == 0; }
  [[nodiscard]] Batch take() override { return loader_->next(); }
  void advance() override { phase_.consumed = advanced(); }
  [[nodiscard]] int pass() const override { return phase_.epoch; }
  [[nodiscard]] std::int64_t consumed() const override { return phase_.consumed; }
  [[nodiscard]] bool is_pass_done() const override { return samples_left(phase_.consumed) == 0; }
  void begin_pass(int pass) override;

 private:
  /// Of this rank's next batch.
  [[nodiscard]] std::int64_t samples_left(std::int64_t consumed) const {
    return sampler_.batch_length(consumed, phase_.batch_size);
  }
  [[nodiscard]] std::int64_t advanced() const { return sampler_.advance(phase_.consumed, phase_.batch_size); }

  LoaderPhase phase_;
  Order order_;
  Sampler sampler_;
  const Dataset& dataset_;
  std::unique_ptr<Loader> loader_;
};

}  // namespace sgd::worker
