#pragma once
// Whether all ranks have made the same model, and see the same data. A model that differs would pass unseen where it is
// of the same size: its gradients would be added to those of other parameters. So would data: ranks that count other
// samples divide other orders, in which samples are lost and come twice. What samples hold is not compared.

#include "worker/collective/collective.hpp"
#include "worker/torch/datasets.hpp"
#include "worker/torch/state_parts.hpp"

namespace sgd::worker {

/// Collective. Of the data: counts, shapes, outputs and names of classes, without reading it; of the model: optimizers,
/// names and shapes. Where some rank's are others than rank 0's, every rank throws an error that names the ranks and
/// the first difference. `dataset`: null: the job has none.
void check_same_model(Collective& collective, const StateTensors& tensors, const Dataset* dataset);

}  // namespace sgd::worker
