#pragma once
// Element types of LibTorch's tensors and of files, one for one.

#include <optional>

#include <c10/core/ScalarType.h>

#include "worker/core/safetensors.hpp"

namespace sgd::worker {

/// Nothing for a type that files cannot hold.
[[nodiscard]] std::optional<TensorType> tensor_type_of(c10::ScalarType type);
[[nodiscard]] c10::ScalarType scalar_type_of(TensorType type);

}  // namespace sgd::worker
