#include "worker/collective/sum.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

// A block's sum stays in the first-level cache while the buffers pass by.
constexpr std::size_t kBlock = 2048;

constexpr std::uint32_t kExponent = 0x7f80'0000;
constexpr std::uint32_t kLowestOfExponent = 0x0080'0000;
constexpr std::uint32_t kSign = 0x8000'0000;

// The sign bit is set if the exponent is all ones, as that of infinities and NaN is: adding one carries into it. Three
// integer operations that every vector unit has; the bits of many values may be ORed.
inline std::uint32_t not_finite_bit(float value) {
  return (std::bit_cast<std::uint32_t>(value) & kExponent) + kLowestOfExponent;
}

SGD_CLONES bool sum_pair(float* __restrict a, float* __restrict b, std::size_t count) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    a[i] = sum;
    b[i] = sum;
    bits |= not_finite_bit(sum);
  }
  return (bits & kSign) == 0;
}

SGD_CLONES void add_into(float* __restrict sum, const float* __restrict values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
}

// For the last buffer.
SGD_CLONES bool add_last_into(float* __restrict sum, const float* __restrict values, std::size_t count) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float last = sum[i] + values[i];
    sum[i] = last;
    bits |= not_finite_bit(last);
  }
  return (bits & kSign) == 0;
}

SGD_CLONES bool are_finite(const float* values, std::size_t count) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < count; ++i) bits |= not_finite_bit(values[i]);
  return (bits & kSign) == 0;
}

}  // namespace

bool sum_to_all(std::span<float* const> buffers, std::size_t begin, std::size_t end) {
  if (buffers.size() == 2) return sum_pair(buffers[0] + begin, buffers[1] + begin, end - begin);
  bool finite = true;
  for (; begin < end; begin += kBlock) {
    const std::size_t count = std::min(kBlock, end - begin);
    finite &= sum_to_first(buffers, begin, begin + count);
    for (std::size_t i = 1; i < buffers.size(); ++i) {
      std::copy_n(buffers[0] + begin, count, buffers[i] + begin);
    }
  }
  return finite;
}

bool sum_to_first(std::span<float* const> buffers, std::size_t begin, std::size_t end) {
  if (buffers.size() == 1) return are_finite(buffers[0] + begin, end - begin);
  bool finite = true;
  for (; begin < end; begin += kBlock) {
    const std::size_t count = std::min(kBlock, end - begin);
    float* const sum = buffers[0] + begin;
    const std::size_t last = buffers.size() - 1;
    for (std::size_t i = 1; i < last; ++i) add_into(sum, buffers[i] + begin, count);
    finite &= add_last_into(sum, buffers[last] + begin, count);
  }
  return finite;
}

bool all_finite(std::span<const float> values) {
  return are_finite(values.data(), values.size());
}

}  // namespace sgd::worker
