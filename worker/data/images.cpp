#include "worker/data/images.hpp"

#include <algorithm>

#include "common/base/assert.hpp"
#include "worker/core/simd.hpp"

namespace sgd::worker {
namespace {

SGD_CLONES void normalize_plane(float* __restrict values, std::int64_t count, float mean, float deviation) {
  for (std::int64_t i = 0; i < count; ++i) values[i] = (values[i] - mean) / deviation;
}

}  // namespace

template <class T>
void shift_image(const T* image, const ImageShape& shape, std::int64_t down, std::int64_t right, T* out, T border) {
  const std::int64_t first = std::clamp<std::int64_t>(-right, 0, shape.columns);
  const std::int64_t last = std::clamp<std::int64_t>(shape.columns - right, first, shape.columns);
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      T* to = out + channel * shape.plane() + row * shape.columns;
      const std::int64_t source = row + down;
      if (source < 0 || source >= shape.rows || first == last) {
        std::fill(to, to + shape.columns, border);
        continue;
      }
      const T* from = image + channel * shape.plane() + source * shape.columns + first + right;
      std::fill(to, to + first, border);
      std::copy(from, from + (last - first), to + first);
      std::fill(to + last, to + shape.columns, border);
    }
  }
}

template <class T>
void flip_image(const T* image, const ImageShape& shape, T* out) {
  for (std::int64_t row = 0; row < shape.channels * shape.rows; ++row) {
    const T* from = image + row * shape.columns;
    std::reverse_copy(from, from + shape.columns, out + row * shape.columns);
  }
}

template <class T>
void cut_square(T* image, const ImageShape& shape, std::int64_t row, std::int64_t column, std::int64_t size) {
  const std::int64_t top = std::clamp<std::int64_t>(row - size / 2, 0, shape.rows);
  const std::int64_t bottom = std::clamp<std::int64_t>(row - size / 2 + size, 0, shape.rows);
  const std::int64_t left = std::clamp<std::int64_t>(column - size / 2, 0, shape.columns);
  const std::int64_t right = std::clamp<std::int64_t>(column - size / 2 + size, 0, shape.columns);
  for (std::int64_t channel = 0; channel < shape.channels; ++channel) {
    for (std::int64_t at = top; at < bottom; ++at) {
      T* line = image + channel * shape.plane() + at * shape.columns;
      std::fill(line + left, line + right, T{0});
    }
  }
}

void normalize_image(float* image, const ImageShape& shape, std::span<const float> mean,
                     std::span<const float> deviation) {
  SGD_ASSERT(static_cast<std::int64_t>(mean.size()) == shape.channels && deviation.size() == mean.size());
  for (std::size_t channel = 0; channel < mean.size(); ++channel) {
    normalize_plane(image + static_cast<std::int64_t>(channel) * shape.plane(), shape.plane(), mean[channel],
                    deviation[channel]);
  }
}

template void shift_image(const std::uint8_t*, const ImageShape&, std::int64_t, std::int64_t, std::uint8_t*,
                          std::uint8_t);
template void shift_image(const float*, const ImageShape&, std::int64_t, std::int64_t, float*, float);
template void flip_image(const std::uint8_t*, const ImageShape&, std::uint8_t*);
template void flip_image(const float*, const ImageShape&, float*);
template void cut_square(std::uint8_t*, const ImageShape&, std::int64_t, std::int64_t, std::int64_t);
template void cut_square(float*, const ImageShape&, std::int64_t, std::int64_t, std::int64_t);

}  // namespace sgd::worker
