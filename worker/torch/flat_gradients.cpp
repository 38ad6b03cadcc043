#include "worker/torch/flat_gradients.hpp"

#include <cmath>

#include <ATen/Functions.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include "worker/torch/device_error.hpp"
#include "worker/torch/errors.hpp"

namespace sgd::worker {
namespace {

template <class Action>
auto on(const Device& device, Action action) {
  try {
    return action();
  } catch (const c10::Error& error) {
    const auto told = device_error_of(error, device);
    if (!told) throw;
    if (told->is_final) throw ConfigurationError(told->text);
    throw DeviceFault(told->text);
  }
}

}  // namespace

FlatGradients::FlatGradients(const Device& device, std::size_t count)
    : device_(device),
      values_(at::zeros({static_cast<std::int64_t>(count)}, at::TensorOptions().device(device.place()))),
      extremes_(device.host_memory_for(at::empty({2}))),
      looked_(device.place()) {}

std::span<float> FlatGradients::values() {
  return {static_cast<float*>(values_.data_ptr()), static_cast<std::size_t>(values_.numel())};
}

void* FlatGradients::stream() {
  const std::optional<c10::Stream> stream = device_.stream();
  return stream ? stream->native_handle() : nullptr;
}

/// The thread of an abort lives on when this object is gone.
std::function<void()> FlatGradients::entrance() {
  const at::Device place = device_.place();
  if (place.is_cpu()) return [] {};
  return [place] { c10::impl::VirtualGuardImpl(place.type()).uncheckedSetDevice(place); };
}

/// The stream, and not an event: one that was never recorded is done, and CUDA is not asked.
void FlatGradients::check() {
  on(device_, [&] {
    const std::optional<c10::Stream> stream = device_.stream();
    if (stream) (void)stream->query();  // Ignoring whether it is idle: an error of the device is thrown.
  });
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
