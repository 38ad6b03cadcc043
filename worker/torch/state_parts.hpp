#pragma once
// A rank's tensors as the spans of memory they lie in, in one fixed order: parameters, optimizer
// buffers, module buffers. What a memory checkpoint copies and a restore fills or broadcasts.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "worker/core/memory_checkpoint.hpp"
#include "worker/core/step_optimizer.hpp"
#include "worker/torch/module_buffers.hpp"
#include "worker/torch/parameter_place.hpp"

namespace sgd::worker {

struct StateParts {
  std::vector<std::span<std::byte>> parts;  ///< The tensors' own memory.
  MemoryLayout layout;                      ///< Equal only for equal models and optimizers.

  [[nodiscard]] std::vector<std::span<const std::byte>> readable() const { return {parts.begin(), parts.end()}; }
};

[[nodiscard]] StateParts state_parts(std::span<float> parameters, const std::vector<ParameterPlace>& places,
                                     const std::string& optimizer_type, const std::vector<OptimizerBuffer>& optimizer,
                                     const std::vector<ModuleBuffer>& buffers);

}  // namespace sgd::worker
