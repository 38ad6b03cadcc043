#include "worker/torch/relu_max_pool.hpp"

#include <algorithm>

#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

/// out[c][p] = in[p][c], in blocks that fit the first cache.
SGD_CLONES void transpose(const float* __restrict in, float* __restrict out, std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kBlock = 16;
  for (std::int64_t r0 = 0; r0 < rows; r0 += kBlock) {
    const std::int64_t r1 = std::min(rows, r0 + kBlock);
    for (std::int64_t c0 = 0; c0 < columns; c0 += kBlock) {
      const std::int64_t c1 = std::min(columns, c0 + kBlock);
      for (std::int64_t c = c0; c < c1; ++c) {
        for (std::int64_t r = r0; r < r1; ++r) out[c * rows + r] = in[r * columns + c];
      }
    }
  }
}

/// One output pixel, all channels. A NaN wins, as in PyTorch; of equal values the first.
SGD_CLONES void pool_pixel(const float* __restrict a, const float* __restrict b, const float* __restrict c,
                           const float* __restrict d, float* __restrict out, std::int32_t* __restrict origin,
                           std::int64_t channels) {
  for (std::int64_t i = 0; i < channels; ++i) {
    float best = a[i];
    std::int32_t from = 0;
    const bool second = b[i] > best || b[i] != b[i];
    best = second ? b[i] : best;
    from = second ? 1 : from;
    const bool third = c[i] > best || c[i] != c[i];
    best = third ? c[i] : best;
    from = third ? 2 : from;
    const bool fourth = d[i] > best || d[i] != d[i];
    best = fourth ? d[i] : best;
    from = fourth ? 3 : from;
    const bool off = best <= 0;
    out[i] = off ? 0.0f : best;
    origin[i] = off ? kNoOrigin : from;
  }
}

SGD_CLONES void spread_pixel(const float* __restrict gradient, const std::int32_t* __restrict origin,
                             float* __restrict a, float* __restrict b, float* __restrict c, float* __restrict d,
                             float* __restrict sums, std::int64_t channels) {
  for (std::int64_t i = 0; i < channels; ++i) {
    sums[i] += origin[i] == kNoOrigin ? 0.0f : gradient[i];
    a[i] = origin[i] == 0 ? gradient[i] : 0.0f;
    b[i] = origin[i] == 1 ? gradient[i] : 0.0f;
    c[i] = origin[i] == 2 ? gradient[i] : 0.0f;
    d[i] = origin[i] == 3 ? gradient[i] : 0.0f;
  }
}

}  // namespace

void relu_max_pool(const PoolShape& shape, const float* image, float* out, std::int32_t* origins, float* scratch) {
  constexpr std::int64_t kChannelsMax = 1024;
  std::int32_t unused[kChannelsMax];
  const std::int64_t line = shape.columns * shape.channels;
  const std::int64_t pooled_rows = shape.pooled_rows();
  const std::int64_t pooled_columns = shape.pooled_columns();
  for (std::int64_t row = 0; row < pooled_rows; ++row) {
    for (std::int64_t column = 0; column < pooled_columns; ++column) {
      const float* corner = image + 2 * row * line + 2 * column * shape.channels;
      const std::int64_t at = (row * pooled_columns + column) * shape.channels;
      for (std::int64_t first = 0; first < shape.channels; first += kChannelsMax) {
        const float* from = corner + first;
        pool_pixel(from, from + shape.channels, from + line, from + line + shape.channels, scratch + at + first,
                   origins != nullptr ? origins + at + first : unused, std::min(kChannelsMax, shape.channels - first));
      }
    }
  }
  transpose(scratch, out, pooled_rows * pooled_columns, shape.channels);
}

void relu_max_pool_backward(const PoolShape& shape, const float* out_gradient, const std::int32_t* origins,
                            float* image_gradient, float* sums, float* scratch) {
  const std::int64_t line = shape.columns * shape.channels;
  const std::int64_t pooled_rows = shape.pooled_rows();
  const std::int64_t pooled_columns = shape.pooled_columns();
  transpose(out_gradient, scratch, shape.channels, pooled_rows * pooled_columns);
  if (shape.rows % 2 != 0 || shape.columns % 2 != 0) std::fill_n(image_gradient, shape.count(), 0.0f);
  for (std::int64_t row = 0; row < pooled_rows; ++row) {
    for (std::int64_t column = 0; column < pooled_columns; ++column) {
      float* corner = image_gradient + 2 * row * line + 2 * column * shape.channels;
      const std::int64_t at = (row * pooled_columns + column) * shape.channels;
      spread_pixel(scratch + at, origins + at, corner, corner + shape.channels, corner + line,
                   corner + line + shape.channels, sums, shape.channels);
    }
  }
}

}  // namespace sgd::worker
