#pragma once
// The buffers of models (running statistics and the like) are rank 0's on every rank between two batches, as in
// PyTorch's DistributedDataParallel with broadcast_buffers: every rank's batch changes its own, and what a rank other
// than 0 has put there is dropped. So a checkpoint of any rank holds the state of all.
// Without broadcast_buffers each rank keeps its own, and gives them to checkpoints as tensors of its own.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include "worker/collective/collective.hpp"
#include "worker/torch/checkpoint_state.hpp"
#include "worker/torch/named_models.hpp"

namespace sgd::worker {

class SharedBuffers {
 public:
  struct Rules {
    bool broadcasts = true;
    bool heals = false;        ///< A buffer that a batch makes infinite or NaN is as it was before that batch.
    bool is_separate = false;  ///< They lie on a device.
  };

  /// `collective` must outlive this object. Buffers may be replaced later, but none may be added to models without any.
  SharedBuffers(NamedModels models, Collective& collective, Rules rules);

  /// Before the first batch, and whenever something else than a batch has changed them.
  void remember();
  /// Collective, at the end of a batch; nothing for models without buffers.
  void end_batch();

  /// Where each rank keeps its own: adds them to what it keeps beside. Throws where a name is taken.
  void give_own(OperatorState& own) const;
  /// Takes them out of what every rank has kept, and where each rank keeps its own this rank's back from there.
  void take_own(TrainingState& state);

  /// A number that differs (all but surely) when any bit of the buffers differs; 0 where each rank keeps its own.
  [[nodiscard]] std::uint64_t hash();

 private:
  void take_rank_0s();
  void take_rank_0s_on_device();
  void heal();
  [[nodiscard]] bool keeps_own() const;

  NamedModels models_;
  Collective& collective_;
  Rules rules_;
  bool has_any_;
  std::vector<std::byte> packed_;
  std::vector<at::Tensor> before_;  // The floating ones, as they were before the batch in work.
};

}  // namespace sgd::worker
