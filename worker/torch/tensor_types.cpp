#include "worker/torch/tensor_types.hpp"

#include <utility>

#include "common/base/assert.hpp"

namespace sgd::worker {
namespace {

constexpr std::pair<TensorType, c10::ScalarType> kTypes[] = {
    {TensorType::kBool, c10::ScalarType::Bool},     {TensorType::kU8, c10::ScalarType::Byte},
    {TensorType::kI8, c10::ScalarType::Char},       {TensorType::kI16, c10::ScalarType::Short},
    {TensorType::kU16, c10::ScalarType::UInt16},    {TensorType::kF16, c10::ScalarType::Half},
    {TensorType::kBF16, c10::ScalarType::BFloat16}, {TensorType::kI32, c10::ScalarType::Int},
    {TensorType::kU32, c10::ScalarType::UInt32},    {TensorType::kF32, c10::ScalarType::Float},
    {TensorType::kI64, c10::ScalarType::Long},      {TensorType::kU64, c10::ScalarType::UInt64},
    {TensorType::kF64, c10::ScalarType::Double},
};

}  // namespace

std::optional<TensorType> tensor_type_of(c10::ScalarType type) {
  for (const auto& [ours, torchs] : kTypes) {
    if (torchs == type) return ours;
  }
  return std::nullopt;
}

c10::ScalarType scalar_type_of(TensorType type) {
  for (const auto& [ours, torchs] : kTypes) {
    if (ours == type) return torchs;
  }
  SGD_ASSERT(false);
  return c10::ScalarType::Undefined;
}

}  // namespace sgd::worker
