#include "worker/torch/accuracy.hpp"

#include <torch/torch.h>

namespace sgd::worker {

std::int64_t ignored_class(const nlohmann::json& loss) {
  if (!loss.is_object()) return kNoneIgnored;
  const auto found = loss.find("ignore_index");
  return found != loss.end() && found->is_number_integer() ? found->get<std::int64_t>() : kNoneIgnored;
}

double accuracy_of(const at::Tensor& output, const at::Tensor& target, std::int64_t ignored) {
  const bool has_classes = output.dim() >= 2 && output.size(1) >= 2 && target.dim() == output.dim() - 1;
  if (!has_classes || target.numel() == 0 || !at::isIntegralType(target.scalar_type(), false)) return 0;
  at::Tensor counts = target.ge(0);  // Others are left out by the loss, too.
  if (ignored >= 0) counts = counts.logical_and(target.ne(ignored));
  const double correct = output.argmax(1).eq(target).logical_and(counts).sum().item<double>();
  const double counted = counts.sum().item<double>();
  return counted == 0 ? 0 : correct / counted;
}

}  // namespace sgd::worker
