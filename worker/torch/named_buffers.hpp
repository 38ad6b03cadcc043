#pragma once
// The buffers of models as tensors, wherever they lie; module_buffers.hpp has them as memory of the host.

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "worker/torch/module_buffers.hpp"
#include "worker/torch/named_models.hpp"

namespace sgd::worker {

/// A buffer that lies in memory of the host. Throws likewise.
[[nodiscard]] ModuleBuffer describe(const std::string& name, const at::Tensor& tensor);

struct NamedBuffer {
  std::string name;
  at::Tensor tensor;
};
/// The same buffers, wherever they lie.
[[nodiscard]] std::vector<NamedBuffer> named_module_buffers(const NamedModels& models,
                                                            const std::vector<ParameterPlace>& trained);
/// Buffers alone, without parameters.
[[nodiscard]] std::vector<NamedBuffer> named_buffers(const NamedModels& models);

}  // namespace sgd::worker
