#pragma once
// The batches of one phase for one rank, in their order, from a position to the phase's end. Where the data set's
// loader has threads they are made ahead; what a batch is does not depend on that. Threads begin with the first next(),
// and are gone with the object.

#include <cstdint>
#include <memory>
#include <vector>

#include "sgd/training_operator.hpp"
#include "worker/core/sampler.hpp"
#include "worker/data/prefetch.hpp"
#include "worker/torch/datasets.hpp"

namespace sgd::worker {

/// Which batches.
struct LoaderPhase {
  Split split = Split::kTrain;
  int epoch = 1;
  int rank = 0;
  std::int64_t batch_size = 1;  ///< Of one rank.
  std::int64_t consumed = 0;    ///< Position of the first.
};

class Loader {
 public:
  /// Both outlive it.
  Loader(const LoaderPhase& phase, const Sampler& sampler, const Dataset& dataset);
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// The next batch; there must be one. Throws what its making has thrown.
  [[nodiscard]] Batch next();

 private:
  [[nodiscard]] std::vector<std::int64_t> indices_of(std::int64_t number) const;

  LoaderPhase phase_;
  const Sampler& sampler_;
  const Dataset& dataset_;
  std::int64_t next_ = 0;
  std::unique_ptr<Prefetch<Batch>> ahead_;
};

}  // namespace sgd::worker
