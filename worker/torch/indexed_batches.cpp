#include "worker/torch/indexed_batches.hpp"

#include <utility>

namespace sgd::worker {

IndexedBatches::IndexedBatches(const LoaderPhase& phase, Order order, const Dataset& dataset)
    : phase_(phase),
      order_(std::move(order)),
      sampler_(order_(phase.epoch)),
      dataset_(dataset),
      loader_(std::make_unique<Loader>(phase_, sampler_, dataset_)) {}

void IndexedBatches::begin_pass(int pass) {
  loader_.reset();  // Its threads read the order.
  phase_.epoch = pass;
  phase_.consumed = 0;
  sampler_ = order_(pass);
  loader_ = std::make_unique<Loader>(phase_, sampler_, dataset_);
}

}  // namespace sgd::worker
