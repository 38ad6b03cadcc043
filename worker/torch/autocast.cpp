#include "worker/torch/autocast.hpp"

#include <ATen/autocast_mode.h>

namespace sgd::worker {

Autocast::Autocast(const std::string& precision, c10::DeviceType device)
    : is_on_(precision == "bf16" || precision == "fp16"), device_(device) {
  if (!is_on_) return;
  at::autocast::set_autocast_dtype(device_, precision == "bf16" ? at::kBFloat16 : at::kHalf);
  at::autocast::set_autocast_cache_enabled(true);
  at::autocast::set_autocast_enabled(device_, true);
}

Autocast::~Autocast() {
  if (!is_on_) return;
  at::autocast::set_autocast_enabled(device_, false);
  at::autocast::clear_cache();
}

void Autocast::forget_copies() const {
  if (is_on_) at::autocast::clear_cache();
}

Autocast::Pause::Pause(const Autocast& of) : of_(of) {
  if (of_.is_on_) at::autocast::set_autocast_enabled(of_.device_, false);
}

Autocast::Pause::~Pause() {
  if (of_.is_on_) at::autocast::set_autocast_enabled(of_.device_, true);
}

bool is_autocast() {
  return at::autocast::is_autocast_enabled(at::kCPU);
}

}  // namespace sgd::worker
