#include "worker/collective/sum.hpp"

#include <algorithm>

#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

// A block's sum stays in the first-level cache while the buffers pass by.
constexpr std::size_t kBlock = 2048;

SGD_CLONES void sum_pair(float* __restrict a, float* __restrict b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float sum = a[i] + b[i];
    a[i] = sum;
    b[i] = sum;
  }
}

SGD_CLONES void add_into(float* __restrict sum, const float* __restrict values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) sum[i] += values[i];
}

}  // namespace

void sum_to_all(std::span<float* const> buffers, std::size_t begin, std::size_t end) {
  if (buffers.size() == 2) {
    sum_pair(buffers[0] + begin, buffers[1] + begin, end - begin);
    return;
  }
  for (; begin < end; begin += kBlock) {
    const std::size_t count = std::min(kBlock, end - begin);
    sum_to_first(buffers, begin, begin + count);
    for (std::size_t i = 1; i < buffers.size(); ++i) {
      std::copy_n(buffers[0] + begin, count, buffers[i] + begin);
    }
  }
}

void sum_to_first(std::span<float* const> buffers, std::size_t begin, std::size_t end) {
  for (; begin < end; begin += kBlock) {
    const std::size_t count = std::min(kBlock, end - begin);
    for (std::size_t i = 1; i < buffers.size(); ++i) add_into(buffers[0] + begin, buffers[i] + begin, count);
  }
}

}  // namespace sgd::worker
