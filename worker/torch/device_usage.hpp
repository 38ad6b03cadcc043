#pragma once
// How busy, full and warm the GPU of a rank is, as the driver's NVML tells. The library is opened where it is; without
// it nothing is told. Names and numbers of its interface are NVIDIA's, who keeps them
// (https://docs.nvidia.com/deploy/nvml-api).

#include <limits>
#include <memory>
#include <optional>
#include <string>

namespace sgd::worker {

/// At one moment; NaN: the driver does not say, as of a part of a divided device (MIG) how busy and warm it is.
struct DeviceUsage {
  double busy_percent = std::numeric_limits<double>::quiet_NaN();  ///< Of its last sample period, at most a second.
  double memory_mib = std::numeric_limits<double>::quiet_NaN();    ///< In use by all processes.
  double celsius = std::numeric_limits<double>::quiet_NaN();
};

class DeviceMonitor {
 public:
  /// Of the GPU with this UUID; empty: the first. Null where NVML does not know it.
  [[nodiscard]] static std::unique_ptr<DeviceMonitor> open(const std::string& uuid,
                                                           const char* library = "libnvidia-ml.so.1");
  /// Nothing where the driver says none of it.
  [[nodiscard]] std::optional<DeviceUsage> now() const;

 private:
  DeviceMonitor(void* library, void* device) : library_(library), device_(device) {}

  void* library_;  // Stays open as long as the process lives.
  void* device_;
};

}  // namespace sgd::worker
