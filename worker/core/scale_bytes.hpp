#pragma once
// From the bytes of images to the floats that models take.

#include <cstddef>
#include <cstdint>

namespace sgd::worker {

/// out[i] = bytes[i] * 1/255.
void scale_bytes(const std::uint8_t* bytes, float* out, std::size_t count);

/// Rows are read in random order, which the CPU cannot foresee.
inline void prefetch_row(const std::uint8_t* row, std::size_t bytes) {
  constexpr std::size_t line_bytes = 64;
  for (std::size_t i = 0; i < bytes; i += line_bytes) __builtin_prefetch(row + i);
}

}  // namespace sgd::worker
