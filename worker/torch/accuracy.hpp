#pragma once
// What the default validate_batch() calls accuracy.

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "common/json/nlohmann.hpp"

namespace sgd::worker {

inline constexpr std::int64_t kNoneIgnored = -1;

/// The class whose targets the loss of these settings ("training.loss") leaves out; negative: none.
[[nodiscard]] std::int64_t ignored_class(const nlohmann::json& loss);

/// Share of the targets that have the largest output: of samples, or of their pixels or tokens where the outputs are
/// n x classes x more and the targets n x more. Negative targets and those of the class `ignored` count for nothing.
/// 0 where there are no classes.
[[nodiscard]] double accuracy_of(const at::Tensor& output, const at::Tensor& target,
                                 std::int64_t ignored = kNoneIgnored);

}  // namespace sgd::worker
