#pragma once
// Sums of float buffers, element by element in the order given, so that every rank that adds
// the same buffers gets the same bits.

#include <cstddef>
#include <span>

namespace sgd::worker {

/// Elements begin .. end-1 of every buffer become their sum over all buffers.
void sum_to_all(std::span<float* const> buffers, std::size_t begin, std::size_t end);

/// Elements begin .. end-1 of buffers[0] become their sum over all buffers.
void sum_to_first(std::span<float* const> buffers, std::size_t begin, std::size_t end);

}  // namespace sgd::worker
