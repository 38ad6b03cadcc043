#pragma once
// What a model holds besides trainable parameters: running statistics and frozen parameters. They
// are saved with the weights under PyTorch's names, and equal on all ranks at the start.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/core/safetensors.hpp"
#include "worker/torch/parameter_place.hpp"

namespace sgd::worker {

struct NamedModel;

struct ModuleBuffer {
  std::string name;
  TensorType type = TensorType::kF32;
  std::vector<std::int64_t> shape;
  std::span<std::byte> bytes;  ///< The tensor's own memory, valid as long as the model; of a device: a copy's.
};

/// `trained`: the parameters that lie in the flat buffer, whether they are frozen by now or not; all others are among
/// the buffers. Throws on a buffer that is not dense and contiguous, or of a type that files cannot hold.
[[nodiscard]] std::vector<ModuleBuffer> module_buffers(const std::vector<NamedModel>& models,
                                                       const std::vector<ParameterPlace>& trained);

}  // namespace sgd::worker
