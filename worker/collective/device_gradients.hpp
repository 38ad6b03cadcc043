#pragma once
// A rank's gradients in the memory of a device, and the order of work there, as a collective needs them. Who knows the
// device implements it; nothing here knows CUDA or LibTorch.

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>

namespace sgd::worker {

/// An error of the device, or of what runs there: worker_exit::kEnvironment, a cause. Its text names the device.
class DeviceFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Called by the training thread. All but fetch() and put() return without waiting for the device; all but entrance()
/// throw DeviceFault where it has failed.
class DeviceGradients {
 public:
  virtual ~DeviceGradients() = default;

  /// Addresses of the device: not to be read or written by this process.
  [[nodiscard]] virtual std::span<float> values() = 0;
  /// What the device works on in order, as its libraries take it (cudaStream_t).
  [[nodiscard]] virtual void* stream() = 0;

  /// Makes the device the current one of the thread that calls it, which may be any and outlive this object: libraries
  /// take a thread that has chosen none for one of the first device, and begin to use that.
  [[nodiscard]] virtual std::function<void()> entrance() = 0;
  /// Asks the device whether it has failed, whatever it was given before.
  virtual void check() = 0;

  /// Behind all work that was given so far: looks whether these values are finite.
  virtual void look(std::size_t offset, std::size_t count) = 0;
  /// What the last look() has seen; nothing as long as the device is not there.
  [[nodiscard]] virtual std::optional<bool> seen() = 0;

  /// Where no library moves the bytes from device to device: from and to memory of this process. They wait.
  virtual void fetch(std::size_t offset, std::span<float> values) = 0;
  virtual void put(std::size_t offset, std::span<const float> values) = 0;
};

}  // namespace sgd::worker
