#pragma once
// A 3x3 convolution of one-channel images to 32 channels, with ReLU, and its gradient, each in
// one pass. General kernels spend most of their time on this layer in layout changes: it has 9
// multiplications for each value it writes. No torch here; one image at a time.

#include <cstdint>

namespace sgd::worker {

class FirstConvolution {
 public:
  static constexpr std::int64_t kChannels = 32;  ///< Of the output: two vectors of 16.
  static constexpr std::int64_t kTaps = 9;

  FirstConvolution(std::int64_t rows, std::int64_t columns) : rows_(rows), columns_(columns) {}

  [[nodiscard]] std::int64_t out_rows() const { return rows_ - 2; }
  [[nodiscard]] std::int64_t out_columns() const { return columns_ - 2; }
  [[nodiscard]] std::int64_t image_count() const { return rows_ * columns_; }
  [[nodiscard]] std::int64_t out_count() const { return out_rows() * out_columns() * kChannels; }

  /// `weight` is 32 x 9, `bias` 32; `out` gets out_count() values, channels last.
  void forward(const float* image, const float* weight, const float* bias, float* out) const;

  /// Adds this image's gradients to `weight_gradient` (32 x 9) and `bias_gradient` (32). `out` is forward()'s:
  /// where it is 0, ReLU stopped the gradient.
  void backward(const float* image, const float* out, const float* out_gradient, float* weight_gradient,
                float* bias_gradient) const;

 private:
  std::int64_t rows_;
  std::int64_t columns_;
};

}  // namespace sgd::worker
