#pragma once
// Batch normalization over all ranks, as PyTorch's SyncBatchNorm: while an object lives, what at::batch_norm() measures
// in training on this thread is of the batches of all ranks together, forward and backward, and running statistics get
// the same bits on every rank. No module is replaced: it holds for whatever calls that operator, LibTorch's modules,
// TorchScript and users' own code.
//
//   own mean and variance ─► all ranks' ─► those of all samples, joined in double and in rank order ─► normalize
//
// Every rank must come to its normalizations in the same order. Instance normalization, which LibTorch makes of the
// same operator, stays each rank's own.

#include "worker/collective/collective.hpp"

namespace sgd::worker {

class SyncBatchNorm {
 public:
  /// `collective` outlives this object. With one rank nothing changes.
  explicit SyncBatchNorm(Collective& collective);
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;
  ~SyncBatchNorm();

  /// Off, each rank's are its own: while it validates, where ranks may have different numbers of batches.
  void set_on(bool is_on);

 private:
  Collective* collective_;
};

}  // namespace sgd::worker
