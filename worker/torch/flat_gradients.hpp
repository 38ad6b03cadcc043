#pragma once
// The gradients of a rank in the memory of its device, as one flat buffer: what the collective sums.

#include <ATen/core/Tensor.h>

#include "worker/collective/device_gradients.hpp"
#include "worker/torch/device.hpp"

namespace sgd::worker {

class FlatGradients final : public DeviceGradients {
 public:
  FlatGradients(const Device& device, std::size_t count);

  [[nodiscard]] std::span<float> values() override;
  [[nodiscard]] void* stream() override;
  [[nodiscard]] std::function<void()> entrance() override;
  void check() override;
  void look(std::size_t offset, std::size_t count) override;
  [[nodiscard]] std::optional<bool> seen() override;
  void fetch(std::size_t offset, std::span<float> values) override;
  void put(std::size_t offset, std::span<const float> values) override;

 private:
  [[nodiscard]] at::Tensor part(std::size_t offset, std::size_t count) const;

  Device device_;
  at::Tensor values_;
  at::Tensor extremes_;  // The least and the largest; NaN where any is. In memory of the host.
  DeviceMark looked_;
};

}  // namespace sgd::worker
