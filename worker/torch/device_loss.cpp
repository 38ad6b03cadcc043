#include "worker/torch/device_loss.hpp"

#include <dlfcn.h>

#include <cstdlib>

namespace sgd::worker {
namespace {

constexpr int kNvmlSuccess = 0;
constexpr int kNvmlNotFound = 6;
constexpr int kNvmlGpuIsLost = 15;
constexpr int kNvmlCoreSensor = 0;        // NVML_TEMPERATURE_GPU
constexpr std::size_t kUuidLetters = 40;  // "GPU-" or "MIG-", and 36.

struct NvmlCalls {
  int (*by_index)(unsigned, void**) = nullptr;
  int (*by_uuid)(const char*, void**) = nullptr;
  int (*temperature)(void*, int, unsigned*) = nullptr;
};

bool is_lost(const NvmlCalls& nvml, const std::string& word) {
  const bool is_number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number && word.size() != kUuidLetters) return false;
  void* device = nullptr;
  const int found = is_number ? nvml.by_index(static_cast<unsigned>(std::strtoul(word.c_str(), nullptr, 10)), &device)
                              : nvml.by_uuid(word.c_str(), &device);
  if (found != kNvmlSuccess) return found == kNvmlGpuIsLost || found == kNvmlNotFound;
  unsigned celsius = 0;
  // A handle is had from what the driver remembers; only a value is asked of the device itself.
  return nvml.temperature(device, kNvmlCoreSensor, &celsius) == kNvmlGpuIsLost;
}

}  // namespace

std::vector<std::size_t> lost_devices(const std::vector<std::string>& words, const char* name) {
  std::vector<std::size_t> lost;
  void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return lost;
  const auto init = reinterpret_cast<int (*)()>(::dlsym(library, "nvmlInit_v2"));
  NvmlCalls nvml;
  nvml.by_index = reinterpret_cast<int (*)(unsigned, void**)>(::dlsym(library, "nvmlDeviceGetHandleByIndex_v2"));
  nvml.by_uuid = reinterpret_cast<int (*)(const char*, void**)>(::dlsym(library, "nvmlDeviceGetHandleByUUID"));
  nvml.temperature = reinterpret_cast<int (*)(void*, int, unsigned*)>(::dlsym(library, "nvmlDeviceGetTemperature"));
  const bool is_whole = nvml.by_index != nullptr && nvml.by_uuid != nullptr && nvml.temperature != nullptr;
  if (!is_whole || init == nullptr || init() != kNvmlSuccess) return lost;
  for (std::size_t place = 0; place < words.size(); ++place)
    if (is_lost(nvml, words[place])) lost.push_back(place);
  return lost;  // The library stays open: the process ends soon.
}

}  // namespace sgd::worker
