#include "worker/torch/module_buffers.hpp"

#include <stdexcept>

#include <torch/torch.h>

namespace sgd::worker {
namespace {

TensorType type_of(const std::string& name, const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBool:
      return TensorType::kBool;
    case at::kByte:
      return TensorType::kU8;
    case at::kChar:
      return TensorType::kI8;
    case at::kShort:
      return TensorType::kI16;
    case at::kHalf:
      return TensorType::kF16;
    case at::kBFloat16:
      return TensorType::kBF16;
    case at::kInt:
      return TensorType::kI32;
    case at::kFloat:
      return TensorType::kF32;
    case at::kLong:
      return TensorType::kI64;
    case at::kDouble:
      return TensorType::kF64;
    default:
      throw std::invalid_argument("buffer " + name + " has a type that checkpoints cannot hold");
  }
}

ModuleBuffer describe(const std::string& name, const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || !tensor.is_contiguous())
    throw std::invalid_argument("buffer " + name + " is not dense and contiguous");
  auto* data = static_cast<std::byte*>(tensor.data_ptr());
  return {name, type_of(name, tensor), tensor.sizes().vec(), {data, tensor.nbytes()}};
}

}  // namespace

std::vector<ModuleBuffer> module_buffers(const torch::nn::Module& model) {
  std::vector<ModuleBuffer> buffers;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().requires_grad()) buffers.push_back(describe(item.key(), item.value()));
  }
  for (const auto& item : model.named_buffers()) {
    if (item.value().defined()) buffers.push_back(describe(item.key(), item.value()));
  }
  return buffers;
}

}  // namespace sgd::worker
