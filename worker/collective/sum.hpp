#pragma once
// Sums of float buffers, element by element in the order given, so that every rank that adds
// the same buffers gets the same bits. Each also says whether all that it wrote is finite: a value that is not makes
// its sum not finite, and while a sum is in a register, looking at it costs nothing that memory does not hide.

#include <cstddef>
#include <span>

namespace sgd::worker {

/// Elements begin .. end-1 of every buffer become their sum over all buffers. Whether all sums are finite.
[[nodiscard]] bool sum_to_all(std::span<float* const> buffers, std::size_t begin, std::size_t end);

/// Elements begin .. end-1 of buffers[0] become their sum over all buffers. Whether all sums are finite.
[[nodiscard]] bool sum_to_first(std::span<float* const> buffers, std::size_t begin, std::size_t end);

/// Whether none is infinite or NaN.
[[nodiscard]] bool all_finite(std::span<const float> values);

}  // namespace sgd::worker
