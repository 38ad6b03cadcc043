#include "worker/torch/device_usage.hpp"

#include <dlfcn.h>

namespace sgd::worker {
namespace {

constexpr int kSuccess = 0;
constexpr int kCoreSensor = 0;  // NVML_TEMPERATURE_GPU
constexpr double kMiB = 1 << 20;

struct Utilization {
  unsigned gpu = 0;
  unsigned memory = 0;
};

struct Memory {
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

template <class Call>
Call* call(void* library, const char* name) {
  return reinterpret_cast<Call*>(::dlsym(library, name));
}

}  // namespace

std::unique_ptr<DeviceMonitor> DeviceMonitor::open(const std::string& uuid, const char* name) {
  void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  const auto init = call<int()>(library, "nvmlInit_v2");
  const auto by_uuid = call<int(const char*, void**)>(library, "nvmlDeviceGetHandleByUUID");
  const auto by_index = call<int(unsigned, void**)>(library, "nvmlDeviceGetHandleByIndex_v2");
  if (init == nullptr || by_uuid == nullptr || by_index == nullptr || init() != kSuccess) return nullptr;
  void* device = nullptr;
  const int found = uuid.empty() ? by_index(0, &device) : by_uuid(uuid.c_str(), &device);
  if (found != kSuccess) return nullptr;
  return std::unique_ptr<DeviceMonitor>(new DeviceMonitor(library, device));
}

std::optional<DeviceUsage> DeviceMonitor::now() const {
  const auto rates = call<int(void*, Utilization*)>(library_, "nvmlDeviceGetUtilizationRates");
  const auto memory = call<int(void*, Memory*)>(library_, "nvmlDeviceGetMemoryInfo");
  const auto temperature = call<int(void*, int, unsigned*)>(library_, "nvmlDeviceGetTemperature");
  Utilization busy;
  Memory bytes;
  unsigned celsius = 0;
  DeviceUsage usage;
  const bool has_rates = rates != nullptr && rates(device_, &busy) == kSuccess;
  const bool has_memory = memory != nullptr && memory(device_, &bytes) == kSuccess;
  const bool has_heat = temperature != nullptr && temperature(device_, kCoreSensor, &celsius) == kSuccess;
  if (!has_rates && !has_memory && !has_heat) return std::nullopt;
  if (has_rates) usage.busy_percent = static_cast<double>(busy.gpu);
  if (has_memory) usage.memory_mib = static_cast<double>(bytes.used) / kMiB;
  if (has_heat) usage.celsius = static_cast<double>(celsius);
  return usage;
}

}  // namespace sgd::worker
