#include "launcher/core/gpu_failure.hpp"

#include <algorithm>
#include <array>

namespace sgd::core {
namespace {

/// Of cudaGetErrorString, cuGetErrorName and NVML: https://docs.nvidia.com/cuda/cuda-runtime-api, "Data types". Not
/// what a faulty kernel does to any GPU, as "an illegal memory access" and "unspecified launch failure": that would
/// leave out one after the other for a program's own mistake. Nor what comes from elsewhere: a GPU is "busy or
/// unavailable" where another process has it for itself, and an error "over nvlink or a hardware error" may be of the
/// peer that was read.
constexpr std::array<std::string_view, 8> kGpuWords = {
    "uncorrectable ECC error",
    "uncorrectable NVLink error",
    "hardware stack error",
    "CUDA_ERROR_ECC_UNCORRECTABLE",
    "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "GPU is lost",
    "fallen off the bus",
};

bool are_of_gpu(const RankWords& words) {
  if (tells_gpu_failure(words.message)) return true;
  if (words.error != nullptr && !words.error->empty()) return tells_gpu_failure(words.error->message);
  return words.tail != nullptr && std::any_of(words.tail->begin(), words.tail->end(),
                                              [](std::string_view line) { return tells_gpu_failure(line); });
}

}  // namespace

bool tells_gpu_failure(std::string_view text) {
  return std::any_of(kGpuWords.begin(), kGpuWords.end(),
                     [text](std::string_view words) { return text.find(words) != std::string_view::npos; });
}

std::string failed_gpu(const GpuNames& gpus, bool uses_first, const RankWords& words) {
  const bool is_one = gpus.size() == 1 || (uses_first && !gpus.empty());
  return is_one && words.is_own_end && are_of_gpu(words) ? gpus.front() : std::string();
}

}  // namespace sgd::core
