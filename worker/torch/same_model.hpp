#pragma once
// Whether all ranks have made the same model. One that differs would pass unseen where it is of the same size: its
// gradients would be added to those of other parameters.

#include "worker/collective/collective.hpp"
#include "worker/torch/state_parts.hpp"

namespace sgd::worker {

/// Collective. Optimizers, names and shapes are compared; where some rank's are others than rank 0's, every rank throws
/// an error that names the ranks and the first difference.
void check_same_model(Collective& collective, const StateTensors& tensors);

}  // namespace sgd::worker
