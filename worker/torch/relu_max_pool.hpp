#pragma once
// max-pool 2x2 followed by ReLU and flatten, and its gradient, each in one pass over plain memory:
// from images with their channels last, as convolutions make them, to rows in PyTorch's order
// (channel, row, column), as a linear layer's weights expect them. Equal, bit for bit, to
// flatten(max_pool2d(relu(x), 2)). No torch here; one sample at a time.

#include <cstdint>

namespace sgd::worker {

struct PoolShape {
  std::int64_t rows = 0;  ///< Of the image before pooling; an odd last row or column is left out.
  std::int64_t columns = 0;
  std::int64_t channels = 0;

  [[nodiscard]] std::int64_t pooled_rows() const { return rows / 2; }
  [[nodiscard]] std::int64_t pooled_columns() const { return columns / 2; }
  [[nodiscard]] std::int64_t pooled_count() const { return pooled_rows() * pooled_columns() * channels; }
  [[nodiscard]] std::int64_t count() const { return rows * columns * channels; }
};

/// `out` gets pooled_count() values. `origins`, in the order (row, column, channel) and null when no gradient is
/// wanted, gets which of the four pixels each came from, or kNoOrigin where ReLU made it 0. `scratch` holds
/// pooled_count() floats.
void relu_max_pool(const PoolShape& shape, const float* image, float* out, std::int32_t* origins, float* scratch);

/// Writes every element of `image_gradient`, from the gradient of `out` and the origins, and adds their sum per
/// channel to `sums`.
void relu_max_pool_backward(const PoolShape& shape, const float* out_gradient, const std::int32_t* origins,
                            float* image_gradient, float* sums, float* scratch);

inline constexpr std::int32_t kNoOrigin = 4;

}  // namespace sgd::worker
