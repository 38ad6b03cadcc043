#pragma once
// Weights and data that are the same here and in the Python programs of data/: functions of a place and an index, exact
// in float.

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace sgd::worker::testing {

/// Numbers from -1 to below 1.
inline at::Tensor chance(std::int64_t place, std::int64_t count) {
  at::Tensor numbers = at::empty({count}, at::kDouble);
  auto* out = numbers.data_ptr<double>();
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(count); ++i) {
    std::uint64_t x = (i * 2654435761u + static_cast<std::uint64_t>(place) * 40503u + 12345u) & 0xffffffffu;
    x ^= x >> 15;
    x = (x * 2246822519u) & 0xffffffffu;
    x ^= x >> 13;
    out[i] = static_cast<double>(x) / 2147483648.0 - 1;
  }
  return numbers;
}

inline at::Tensor numbers_at(std::int64_t place, const std::vector<std::int64_t>& shape) {
  return chance(place, c10::multiply_integers(shape)).to(at::kFloat).to(at::kDouble).view(shape);
}

inline at::Tensor classes_at(std::int64_t place, const std::vector<std::int64_t>& shape, std::int64_t count) {
  return ((chance(place, c10::multiply_integers(shape)) + 1) / 2 * count).floor().to(at::kLong).view(shape);
}

inline std::map<std::string, at::Tensor> tensors_of(const torch::nn::Module& model) {
  std::map<std::string, at::Tensor> all;
  for (const auto& item : model.named_parameters()) all.emplace(item.key(), item.value());
  for (const auto& item : model.named_buffers()) all.emplace(item.key(), item.value());
  return all;
}

inline at::Tensor start_of(const std::string& name, std::int64_t place, const at::Tensor& tensor) {
  at::Tensor u = chance(place, tensor.numel());
  if (name.ends_with("num_batches_tracked")) {
    u = u * 0;
  } else if (tensor.dim() >= 2) {
    u = u * std::sqrt(3.0 * static_cast<double>(tensor.size(0)) / static_cast<double>(tensor.numel()));
  } else if (name.ends_with("running_var") || name.ends_with("weight")) {
    u = 1 + 0.1 * u;
  } else {
    u = 0.1 * u;
  }
  return u.to(at::kFloat).view(tensor.sizes());
}

inline void fill_by_names(const torch::nn::Module& model) {
  const at::NoGradGuard no_gradients;
  std::int64_t place = 0;
  for (const auto& [name, tensor] : tensors_of(model)) at::Tensor(tensor).copy_(start_of(name, place++, tensor));
}

}  // namespace sgd::worker::testing
