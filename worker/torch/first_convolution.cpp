#include "worker/torch/first_convolution.hpp"

#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

constexpr int kTaps = FirstConvolution::kTaps;
constexpr int kChannels = FirstConvolution::kChannels;

/// 16 floats at any address; the compiler splits it where the CPU's registers are narrower.
typedef float Lanes __attribute__((vector_size(64), aligned(4), may_alias));
typedef int Mask __attribute__((vector_size(64)));

SGD_CLONES void forward_image(const float* image, std::int64_t columns, std::int64_t out_rows, std::int64_t out_columns,
                              const float* taps, const float* bias, float* out) {
  Lanes weights[kTaps][2];
  for (int tap = 0; tap < kTaps; ++tap) {
    weights[tap][0] = *reinterpret_cast<const Lanes*>(taps + tap * kChannels);
    weights[tap][1] = *reinterpret_cast<const Lanes*>(taps + tap * kChannels + 16);
  }
  const Lanes bias0 = *reinterpret_cast<const Lanes*>(bias);
  const Lanes bias1 = *reinterpret_cast<const Lanes*>(bias + 16);
  const Lanes zero = {};
  for (std::int64_t row = 0; row < out_rows; ++row) {
    for (std::int64_t column = 0; column < out_columns; ++column) {
      const float* corner = image + row * columns + column;
      Lanes sum0 = bias0;
      Lanes sum1 = bias1;
#pragma GCC unroll 9
      for (int tap = 0; tap < kTaps; ++tap) {
        const float pixel = corner[(tap / 3) * columns + tap % 3];
        sum0 += weights[tap][0] * pixel;
        sum1 += weights[tap][1] * pixel;
      }
      // Below or equal zero becomes zero; NaN is neither and stays.
      *reinterpret_cast<Lanes*>(out) = sum0 <= zero ? zero : sum0;
      *reinterpret_cast<Lanes*>(out + 16) = sum1 <= zero ? zero : sum1;
      out += kChannels;
    }
  }
}

SGD_CLONES void backward_image(const float* image, std::int64_t columns, std::int64_t out_rows,
                               std::int64_t out_columns, const float* out, const float* out_gradient, float* taps,
                               float* bias) {
  Lanes sums[kTaps][2] = {};
  Lanes bias0 = {};
  Lanes bias1 = {};
  const Lanes zero = {};
  for (std::int64_t row = 0; row < out_rows; ++row) {
    for (std::int64_t column = 0; column < out_columns; ++column) {
      const float* corner = image + row * columns + column;
      const Lanes value0 = *reinterpret_cast<const Lanes*>(out);
      const Lanes value1 = *reinterpret_cast<const Lanes*>(out + 16);
      const Lanes loaded0 = *reinterpret_cast<const Lanes*>(out_gradient);
      const Lanes loaded1 = *reinterpret_cast<const Lanes*>(out_gradient + 16);
      const Lanes gradient0 = value0 <= zero ? zero : loaded0;
      const Lanes gradient1 = value1 <= zero ? zero : loaded1;
      bias0 += gradient0;
      bias1 += gradient1;
#pragma GCC unroll 9
      for (int tap = 0; tap < kTaps; ++tap) {
        const float pixel = corner[(tap / 3) * columns + tap % 3];
        sums[tap][0] += gradient0 * pixel;
        sums[tap][1] += gradient1 * pixel;
      }
      out += kChannels;
      out_gradient += kChannels;
    }
  }
  for (int tap = 0; tap < kTaps; ++tap) {
    *reinterpret_cast<Lanes*>(taps + tap * kChannels) = sums[tap][0];
    *reinterpret_cast<Lanes*>(taps + tap * kChannels + 16) = sums[tap][1];
  }
  *reinterpret_cast<Lanes*>(bias) = bias0;
  *reinterpret_cast<Lanes*>(bias + 16) = bias1;
}

}  // namespace

void FirstConvolution::forward(const float* image, const float* weight, const float* bias, float* out) const {
  float taps[kTaps * kChannels];
  for (int channel = 0; channel < kChannels; ++channel) {
    for (int tap = 0; tap < kTaps; ++tap) taps[tap * kChannels + channel] = weight[channel * kTaps + tap];
  }
  forward_image(image, columns_, out_rows(), out_columns(), taps, bias, out);
}

void FirstConvolution::backward(const float* image, const float* out, const float* out_gradient, float* weight_gradient,
                                float* bias_gradient) const {
  // One image's sums first: adding 676 values to a large sum one by one would lose their last digits.
  float taps[kTaps * kChannels];
  float bias[kChannels];
  backward_image(image, columns_, out_rows(), out_columns(), out, out_gradient, taps, bias);
  for (int channel = 0; channel < kChannels; ++channel) {
    for (int tap = 0; tap < kTaps; ++tap) weight_gradient[channel * kTaps + tap] += taps[tap * kChannels + channel];
    bias_gradient[channel] += bias[channel];
  }
}

}  // namespace sgd::worker
