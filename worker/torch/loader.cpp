#include "worker/torch/loader.hpp"

#include <utility>

#include "common/base/assert.hpp"
#include "worker/link/stack_signal.hpp"

namespace sgd::worker {

Loader::Loader(const LoaderPhase& phase, const Sampler& sampler, const Dataset& dataset)
    : phase_(phase), sampler_(sampler), dataset_(dataset) {}

Batch Loader::next() {
  const int threads = dataset_.loader().threads.value_or(0);
  if (threads == 0) return dataset_.gather(phase_.split, phase_.epoch, indices_of(next_++));
  if (!ahead_) {
    const StackSignalBlock stays_with_training;
    ahead_ = std::make_unique<Prefetch<Batch>>(
        threads, dataset_.loader().prefetch, sampler_.batches_left(phase_.consumed, phase_.batch_size),
        [this](std::int64_t number, const std::atomic<bool>& is_ending) {
          return dataset_.gather_unless(is_ending, phase_.split, phase_.epoch, indices_of(number));
        });
  }
  std::optional<Batch> batch = ahead_->take();
  SGD_ASSERT(batch.has_value());
  return std::move(*batch);
}

std::vector<std::int64_t> Loader::indices_of(std::int64_t number) const {
  std::vector<std::int64_t> indices;
  sampler_.batch(phase_.consumed + number * phase_.batch_size * sampler_.world_size(), phase_.rank, phase_.batch_size,
                 indices);
  return indices;
}

}  // namespace sgd::worker
