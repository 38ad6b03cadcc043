#pragma once
// What training changes, as the memory it lies in: one list that everything walks that copies, writes, reads or
// broadcasts state. Parameters first, then the buffers of each optimizer, then those of the models.

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "worker/core/memory_checkpoint.hpp"
#include "worker/torch/module_buffers.hpp"
#include "worker/torch/optimizer_record.hpp"
#include "worker/torch/parameter_place.hpp"

namespace sgd::worker {

/// One number for each number of some parameters that lie side by side.
struct FlatTensors {
  std::string suffix;  ///< Of the parameters' names: "", or ".momentum_buffer" and the like.
  std::span<float> values;
  std::span<const ParameterPlace> places;  ///< Of those parameters.
  std::size_t origin = 0;                  ///< The place of the first value.

  [[nodiscard]] std::span<float> of(const ParameterPlace& place) const {
    return values.subspan(place.offset - origin, place.count);
  }
};

/// Valid as long as the parameters, the optimizers and the models.
struct StateTensors {
  std::vector<FlatTensors> flat;      ///< The parameters, which come first, and buffers of optimizers.
  std::vector<ModuleBuffer> buffers;  ///< Of the models.
  std::vector<OptimizerKind> optimizers;
};

struct StateParts {
  std::vector<std::span<std::byte>> parts;  ///< In the list's order.
  std::size_t first_buffer = 0;             ///< From there on they are the models'.
  MemoryLayout layout;                      ///< Equal only for equal models and optimizers.

  [[nodiscard]] std::vector<std::span<const std::byte>> readable() const { return {parts.begin(), parts.end()}; }
  [[nodiscard]] bool is_of_optimizer(std::size_t part) const { return part > 0 && part < first_buffer; }
};

[[nodiscard]] StateParts state_parts(const StateTensors& tensors);

}  // namespace sgd::worker
