#pragma once
// Which of the GPUs that CUDA sees is a rank's.

namespace sgd::worker {

/// `visible`: CUDA_VISIBLE_DEVICES, null where it is not set; `seen`: the devices that CUDA has found; `gpus_each`: of
/// a rank. CUDA leaves out a device that it cannot find, and all that are named behind it: a GPU that has gone is
/// missed here, before two ranks share another one. Throws EnvironmentError, or ConfigurationError where no GPU is
/// meant to be seen.
[[nodiscard]] int device_index(const char* visible, int seen, int local_rank, int gpus_each);

}  // namespace sgd::worker
