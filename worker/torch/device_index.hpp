#pragma once
// Which of the GPUs that CUDA sees is a rank's.

#include <string>

#include "worker/torch/device_loss.hpp"

namespace sgd::worker {

/// `visible`: CUDA_VISIBLE_DEVICES, null where it is not set; `seen`: the devices that CUDA has found; `gpus_each`: of
/// a rank; `reason`: why CUDA has found none, in its words. CUDA leaves out a device that it cannot find, and all that
/// are named behind it: a GPU that has gone is missed here, before two ranks share another one. Throws
/// ConfigurationError where no GPU is meant to be seen or the driver does not fit; EnvironmentError where some are
/// missing, in words that name the rank's own where NVML (`nvml`, its library) says that it is lost; CollectiveError
/// where another rank's is, which is that one's to tell.
[[nodiscard]] int device_index(const char* visible, int seen, int local_rank, int gpus_each,
                               const std::string& reason = {}, const char* nvml = kNvmlLibrary);

/// The word of `visible` that names a rank's GPU; empty: none does.
[[nodiscard]] std::string device_word(const char* visible, int local_rank, int gpus_each);

}  // namespace sgd::worker
