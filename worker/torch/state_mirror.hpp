#pragma once
// The state of a training on a device as memory of the host, for everything that saves, restores and compares it.
//
//   take() ─► copies within the device, behind the step ─► to the host, on a stream beside training ─► is_taken()
//   give() ◄─ what a restore has put into the host's memory
//
// Training goes on behind take() at once: it never changes what is being copied. Between two calls of take() the host's
// memory stays as it is, so whoever writes it somewhere has all that time. The device holds the state twice for it.

#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/torch/device.hpp"

namespace sgd::worker {

class StateMirror {
 public:
  explicit StateMirror(const Device& device);

  /// Names anew what there is to copy: the tensors that follow.
  void begin() { entries_.clear(); }
  /// The host's memory for this tensor: the same as long as it has the name and the size.
  [[nodiscard]] at::Tensor add(const std::string& name, const at::Tensor& tensor);

  /// Begins to copy all of them to the host. The copy before must be taken.
  void take();
  [[nodiscard]] bool is_taken() const { return taken_.is_done(); }
  /// From any thread, which leaves its core to others.
  void wait_taken() const { taken_.wait(); }
  /// Copies all of them to the device.
  void give();

 private:
  struct Entry {
    at::Tensor on_device;
    at::Tensor staged;  // Beside it.
    at::Tensor on_host;
  };
  struct Memory {
    at::Tensor staged;
    at::Tensor on_host;
  };

  Device device_;
  std::optional<c10::Stream> side_;
  std::vector<Entry> entries_;
  std::map<std::string, Memory> memory_;
  DeviceMark staged_;
  DeviceMark taken_;
};

}  // namespace sgd::worker
