#include "worker/torch/flat_gradients.hpp"

#include <cmath>
#include <string_view>

#include <ATen/Functions.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

namespace sgd::worker {
namespace {

constexpr int kDeviceAssert = 710;  // cudaErrorAssert: a label that is no class, an index out of range.

template <class Action>
auto on(const Device& device, Action action) {
  try {
    return action();
  } catch (const c10::Error& error) {
    if (const auto fault = device_fault_of(error, device)) throw DeviceFault(*fault);
    throw;
  }
}

}  // namespace

std::optional<std::string> device_fault_of(const std::exception& error, const Device& device) {
  const auto* of_device = dynamic_cast<const c10::AcceleratorError*>(&error);
  if (of_device == nullptr || of_device->get_error_code() == kDeviceAssert) return std::nullopt;
  const std::string_view words = of_device->what_without_backtrace();
  return fmt::format("{} has failed: {}", device.name(), words.substr(0, words.find('\n')));
}

FlatGradients::FlatGradients(const Device& device, std::size_t count)
    : device_(device),
      values_(at::zeros({static_cast<std::int64_t>(count)}, at::TensorOptions().device(device.place()))),
      extremes_(device.host_memory_for(at::empty({2}))),
      looked_(device) {}

std::span<float> FlatGradients::values() {
  return {static_cast<float*>(values_.data_ptr()), static_cast<std::size_t>(values_.numel())};
}

void* FlatGradients::stream() {
  const std::optional<c10::Stream> stream = device_.stream();
  return stream ? stream->native_handle() : nullptr;
}

at::Tensor FlatGradients::part(std::size_t offset, std::size_t count) const {
  return values_.narrow(0, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(count));
}

void FlatGradients::look(std::size_t offset, std::size_t count) {
  on(device_, [&] {
    if (count == 0) {
      looked_.wait();
      extremes_.zero_();
      return;
    }
    const auto [least, largest] = at::aminmax(part(offset, count));
    extremes_.copy_(at::stack({least, largest}), /*non_blocking=*/true);
    looked_.record(device_.stream());
  });
}

std::optional<bool> FlatGradients::seen() {
  return on(device_, [&]() -> std::optional<bool> {
    if (!looked_.is_done()) return std::nullopt;
    const auto* extremes = extremes_.const_data_ptr<float>();
    return std::isfinite(extremes[0]) && std::isfinite(extremes[1]);
  });
}

void FlatGradients::fetch(std::size_t offset, std::span<float> values) {
  on(device_, [&] {
    at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())}).copy_(part(offset, values.size()));
  });
}

void FlatGradients::put(std::size_t offset, std::span<const float> values) {
  on(device_, [&] {
    part(offset, values.size())
        .copy_(at::from_blob(const_cast<float*>(values.data()), {static_cast<std::int64_t>(values.size())}));
  });
}

}  // namespace sgd::worker
