#include "worker/torch/state_mirror.hpp"

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>

namespace sgd::worker {

StateMirror::StateMirror(const Device& device)
    : device_(device), side_(device.side_stream()), staged_(device.place()), taken_(device.place()) {}

at::Tensor StateMirror::add(const std::string& name, const at::Tensor& tensor) {
  Memory& memory = memory_[name];
  const bool fits = memory.on_host.defined() && memory.on_host.sizes() == tensor.sizes() &&
                    memory.on_host.scalar_type() == tensor.scalar_type();
  if (!fits) memory = {at::empty_like(tensor, at::MemoryFormat::Contiguous), device_.host_memory_for(tensor)};
  entries_.push_back({tensor, memory.staged, memory.on_host});
  return memory.on_host;
}

void StateMirror::take() {
  const c10::NoGradGuard no_gradients;
  for (const Entry& entry : entries_) entry.staged.copy_(entry.on_device);
  staged_.record(device_.stream());
  staged_.hold(side_);
  c10::OptionalStreamGuard beside;
  if (side_) beside.reset_stream(*side_);
  for (const Entry& entry : entries_) entry.on_host.copy_(entry.staged, /*non_blocking=*/true);
  taken_.record(side_);
}

void StateMirror::give() {
  const c10::NoGradGuard no_gradients;
  for (const Entry& entry : entries_) entry.on_device.copy_(entry.on_host, /*non_blocking=*/true);
  // Whoever writes the host's memory next must not be ahead of these copies.
  DeviceMark given(device_.place());
  given.record(device_.stream());
  given.wait();
}

}  // namespace sgd::worker
