#include "worker/measure/number_columns.hpp"

#include <algorithm>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sgd::worker {
namespace {

at::Tensor as_columns(const at::Tensor& tensor) {
  const std::int64_t samples = tensor.size(0);
  const std::int64_t numbers = samples == 0 ? 1 : tensor.numel() / samples;
  return tensor.reshape({samples, numbers}).to(at::kCPU, at::kDouble).contiguous();
}

}  // namespace

NumberColumns number_columns(const char* metric, const at::Tensor& output, const at::Tensor& target) {
  const bool has_samples = output.dim() >= 1 && target.dim() >= 1 && output.size(0) == target.size(0);
  if (!has_samples || output.numel() != target.numel())
    throw std::invalid_argument(
        fmt::format("{}: outputs of shape [{}] and targets of shape [{}] do not fit: as many numbers of as many "
                    "samples are expected",
                    metric, fmt::join(output.sizes(), ", "), fmt::join(target.sizes(), ", ")));
  const at::NoGradGuard no_gradients;
  return {as_columns(output), as_columns(target)};
}

}  // namespace sgd::worker
