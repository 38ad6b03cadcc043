#pragma once
// What an error that CUDA gives says about its cause. Most errors come from what the program has asked for, or from a
// kernel of it: a few alone are proof that the device is broken, and only those say so.

#include <exception>
#include <optional>
#include <string>

#include "worker/torch/device.hpp"

namespace sgd::worker {

struct DeviceError {
  bool is_final = false;  ///< The driver or the build does not fit the device: so it is on each attempt.
  std::string text;       ///< In CUDA's words, with the name of the device.
};

/// Of an error that LibTorch has thrown; nothing where it is the program's own: a kernel has refused its arguments, or
/// it is no error of CUDA's.
[[nodiscard]] std::optional<DeviceError> device_error_of(const std::exception& error, const Device& device);

}  // namespace sgd::worker
