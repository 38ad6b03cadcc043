#pragma once
// Operations on one image in planes (channels x rows x columns), of bytes or of floats: plain functions of what they
// are given. Chance is decided elsewhere (transforms.hpp).

#include <cstddef>
#include <cstdint>
#include <span>

namespace sgd::worker {

struct ImageShape {
  std::int64_t channels = 1;
  std::int64_t rows = 1;
  std::int64_t columns = 1;
  [[nodiscard]] std::int64_t plane() const { return rows * columns; }
  [[nodiscard]] std::size_t count() const { return static_cast<std::size_t>(channels * rows * columns); }
};

/// out(r, c) = image(r + down, c + right), `border` where that is outside: a crop of the image's own size from one with
/// a border. `out` is other memory.
template <class T>
void shift_image(const T* image, const ImageShape& shape, std::int64_t down, std::int64_t right, T* out,
                 T border = T{0});

/// out(r, c) = image(r, columns-1-c). `out` is other memory.
template <class T>
void flip_image(const T* image, const ImageShape& shape, T* out);

/// Sets a square of size x size to 0, around (row, column), clipped at the borders: rows row - size/2 and on.
template <class T>
void cut_square(T* image, const ImageShape& shape, std::int64_t row, std::int64_t column, std::int64_t size);

/// (value - mean) / deviation, by channel.
void normalize_image(float* image, const ImageShape& shape, std::span<const float> mean,
                     std::span<const float> deviation);

extern template void shift_image(const std::uint8_t*, const ImageShape&, std::int64_t, std::int64_t, std::uint8_t*,
                                 std::uint8_t);
extern template void shift_image(const float*, const ImageShape&, std::int64_t, std::int64_t, float*, float);
extern template void flip_image(const std::uint8_t*, const ImageShape&, std::uint8_t*);
extern template void flip_image(const float*, const ImageShape&, float*);
extern template void cut_square(std::uint8_t*, const ImageShape&, std::int64_t, std::int64_t, std::int64_t);
extern template void cut_square(float*, const ImageShape&, std::int64_t, std::int64_t, std::int64_t);

}  // namespace sgd::worker
