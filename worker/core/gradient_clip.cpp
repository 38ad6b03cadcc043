#include "worker/core/gradient_clip.hpp"

#include <algorithm>

#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kLanes = 16;
constexpr double kNormEpsilon = 1e-6;  // PyTorch's.

SGD_CLONES void add_squares(const float* __restrict values, std::size_t count, double* __restrict lanes) {
  for (std::size_t i = 0; i + kLanes <= count; i += kLanes)
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      lanes[lane] += value * value;
    }
}

SGD_CLONES void clamp_all(float* __restrict values, std::size_t count, float scale, float limit) {
  for (std::size_t i = 0; i < count; ++i) {
    const float scaled = values[i] * scale;
    const float lower = scaled < -limit ? -limit : scaled;
    values[i] = lower > limit ? limit : lower;
  }
}

}  // namespace

double sum_of_squares(std::span<const float> values) {
  double lanes[kLanes] = {};
  add_squares(values.data(), values.size(), lanes);
  for (std::size_t i = values.size() / kLanes * kLanes; i < values.size(); ++i)
    lanes[i % kLanes] += static_cast<double>(values[i]) * values[i];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

double clip_factor(double norm, double max_norm) {
  return std::min(1.0, max_norm / (norm + kNormEpsilon));
}

void scale_and_clamp(std::span<float> values, float scale, float limit) {
  clamp_all(values.data(), values.size(), scale, limit);
}

}  // namespace sgd::worker
