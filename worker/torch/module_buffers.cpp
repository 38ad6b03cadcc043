#include "worker/torch/module_buffers.hpp"

#include <set>
#include <stdexcept>

#include <torch/torch.h>

#include "worker/torch/named_buffers.hpp"
#include "worker/torch/named_models.hpp"
#include "worker/torch/tensor_types.hpp"

namespace sgd::worker {
namespace {

TensorType type_of(const std::string& name, const at::Tensor& tensor) {
  const std::optional<TensorType> type = tensor_type_of(tensor.scalar_type());
  if (!type) throw std::invalid_argument("buffer " + name + " has a type that checkpoints cannot hold");
  return *type;
}

void append_buffers(const NamedModel& model, std::vector<NamedBuffer>& buffers) {
  for (const auto& item : model.module->named_buffers())
    if (item.value().defined()) buffers.push_back({model.prefix + item.key(), item.value()});
}

}  // namespace

ModuleBuffer describe(const std::string& name, const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || !tensor.is_contiguous())
    throw std::invalid_argument("buffer " + name + " is not dense and contiguous");
  auto* data = static_cast<std::byte*>(tensor.data_ptr());
  return {name, type_of(name, tensor), tensor.sizes().vec(), {data, tensor.nbytes()}};
}

std::vector<NamedBuffer> named_buffers(const NamedModels& models) {
  std::vector<NamedBuffer> buffers;
  for (const NamedModel& model : models) append_buffers(model, buffers);
  return buffers;
}

std::vector<NamedBuffer> named_module_buffers(const NamedModels& models, const std::vector<ParameterPlace>& trained) {
  std::set<std::string> names;
  for (const ParameterPlace& place : trained) {
    names.insert(place.name);
    names.insert(place.also.begin(), place.also.end());
  }
  std::vector<NamedBuffer> buffers;
  for (const NamedModel& model : models) {
    for (const auto& item : model.module->named_parameters()) {
      const std::string name = model.prefix + item.key();
      if (!names.contains(name)) buffers.push_back({name, item.value()});
    }
    append_buffers(model, buffers);
  }
  return buffers;
}

std::vector<ModuleBuffer> module_buffers(const NamedModels& models, const std::vector<ParameterPlace>& trained) {
  std::vector<ModuleBuffer> buffers;
  for (const NamedBuffer& one : named_module_buffers(models, trained))
    buffers.push_back(describe(one.name, one.tensor));
  return buffers;
}

}  // namespace sgd::worker
