#pragma once
// Which of the GPUs that a process is to see have gone: where CUDA finds fewer, it does not say which ones are missing,
// and NVML does. Nothing is known where NVML is not there.

#include <cstddef>
#include <string>
#include <vector>

namespace sgd::worker {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

/// Places in `words` (of CUDA_VISIBLE_DEVICES: numbers and UUIDs) whose device has fallen off the bus or is not there.
/// The beginning of a UUID says nothing: NVML knows none by it.
[[nodiscard]] std::vector<std::size_t> lost_devices(const std::vector<std::string>& words, const char* library);

}  // namespace sgd::worker
