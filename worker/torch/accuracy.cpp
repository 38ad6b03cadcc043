#include "worker/torch/accuracy.hpp"

#include <torch/torch.h>

namespace sgd::worker {

double accuracy_of(const at::Tensor& output, const at::Tensor& target) {
  const bool has_classes = output.dim() >= 2 && output.size(1) >= 2 && target.dim() == output.dim() - 1;
  if (!has_classes || target.numel() == 0 || !at::isIntegralType(target.scalar_type(), false)) return 0;
  const double correct = output.argmax(1).eq(target).sum().item<double>();
  const double counted = target.ge(0).sum().item<double>();  // Others are left out by the loss, too.
  return counted == 0 ? 0 : correct / counted;
}

}  // namespace sgd::worker
