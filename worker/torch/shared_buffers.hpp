#pragma once
// The buffers of models (running statistics and the like) are rank 0's on every rank between two batches, as in
// PyTorch's DistributedDataParallel with broadcast_buffers: every rank's batch changes its own, and what a rank other
// than 0 has put there is dropped. So a checkpoint of any rank holds the state of all.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include "worker/collective/collective.hpp"
#include "worker/torch/named_models.hpp"

namespace sgd::worker {

class SharedBuffers {
 public:
  /// `collective` must outlive this object. Buffers may be replaced later, but none may be added to models without any.
  SharedBuffers(NamedModels models, Collective& collective);

  /// Collective; nothing for models without buffers, or a rank alone.
  void take_rank_0s();

  /// A number that differs (all but surely) when any bit of the buffers differs.
  [[nodiscard]] std::uint64_t hash();

 private:
  NamedModels models_;
  Collective& collective_;
  bool is_needed_;
  std::vector<std::byte> packed_;
};

}  // namespace sgd::worker
