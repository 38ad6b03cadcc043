#include "worker/torch/device_error.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace sgd::worker {
namespace {

enum class Cause {
  kProgram,        ///< It has given CUDA what it does not take.
  kMemory,         ///< The device has no more.
  kConfiguration,  ///< Driver, build and device do not fit each other.
  kOfKernel,       ///< It reads what is not its own, or is none: a program's mistake, and now and then a broken device.
  kDevice,         ///< Out of order.
  kUnknown,
};

struct Row {
  int code;
  Cause cause;
};

/// cudaError_t, whose numbers NVIDIA keeps: https://docs.nvidia.com/cuda/cuda-runtime-api, "Data types".
constexpr std::array<Row, 18> kCauses = {{
    {1, Cause::kProgram},          // cudaErrorInvalidValue
    {2, Cause::kMemory},           // cudaErrorMemoryAllocation
    {9, Cause::kProgram},          // cudaErrorInvalidConfiguration
    {35, Cause::kConfiguration},   // cudaErrorInsufficientDriver
    {46, Cause::kDevice},          // cudaErrorDevicesUnavailable
    {98, Cause::kConfiguration},   // cudaErrorInvalidDeviceFunction
    {209, Cause::kConfiguration},  // cudaErrorNoKernelImageForDevice
    {214, Cause::kDevice},         // cudaErrorECCUncorrectable
    {220, Cause::kDevice},         // cudaErrorNvlinkUncorrectable
    {700, Cause::kOfKernel},       // cudaErrorIllegalAddress
    {710, Cause::kProgram},        // cudaErrorAssert: a label that is no class, an index out of range.
    {714, Cause::kDevice},         // cudaErrorHardwareStackError
    {715, Cause::kOfKernel},       // cudaErrorIllegalInstruction
    {716, Cause::kOfKernel},       // cudaErrorMisalignedAddress
    {717, Cause::kOfKernel},       // cudaErrorInvalidAddressSpace
    {718, Cause::kOfKernel},       // cudaErrorInvalidPc
    {719, Cause::kOfKernel},       // cudaErrorLaunchFailure
    {999, Cause::kDevice},         // cudaErrorUnknown: what a device that has fallen off the bus gives.
}};

Cause cause_of(int code) {
  const auto* row = std::find_if(kCauses.begin(), kCauses.end(), [code](const Row& one) { return one.code == code; });
  return row == kCauses.end() ? Cause::kUnknown : row->cause;
}

std::string text_for(Cause cause, const std::string& device, std::string_view words) {
  switch (cause) {
    case Cause::kProgram:
      return {};
    case Cause::kMemory:
      return fmt::format("{} has no memory left: {}", device, words);
    case Cause::kConfiguration:
      return fmt::format("{} cannot be used with this driver and this LibTorch: {}", device, words);
    case Cause::kOfKernel:
      return fmt::format("an error came from a kernel on {}: {}", device, words);
    case Cause::kDevice:
      return fmt::format("{} has failed: {}", device, words);
    case Cause::kUnknown:
      return fmt::format("an error came from {}: {}", device, words);
  }
  return {};
}

}  // namespace

std::optional<DeviceError> device_error_of(const std::exception& error, const Device& device) {
  const auto* of_device = dynamic_cast<const c10::AcceleratorError*>(&error);
  if (of_device == nullptr) return std::nullopt;
  const Cause cause = cause_of(of_device->get_error_code());
  if (cause == Cause::kProgram) return std::nullopt;
  const std::string_view words = of_device->what_without_backtrace();
  return DeviceError{cause == Cause::kConfiguration, text_for(cause, device.name(), words.substr(0, words.find('\n')))};
}

}  // namespace sgd::worker
