#pragma once
// Images of any size to one size. Pure: chance comes in as a seed.
//
// Bilinear with antialiasing, as Pillow's BILINEAR to the bit, and torchvision's Resize of a PIL image; PyTorch's
// interpolate(mode="bilinear", antialias=True) gives the same within one level of 255. Along each side, of n pixels to
// N:
//   s = n / N, f = max(s, 1), centre(i) = (i + 0.5) s, w(i, j) = max(0, 1 - |j + 0.5 - centre(i)| / f), out(i) = sum
//   w(i, j) in(j) / sum w(i, j), rounded to a byte; columns first, then rows.
// Nearest, for masks: out(i) = in(floor((i + 0.5) s)), PyTorch's "nearest-exact".

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "worker/data/decoded_image.hpp"
#include "worker/data/images.hpp"

namespace sgd::worker {

enum class ResizeMode {
  kCrop,               ///< Scaled to cover the size, its middle taken.
  kStretch,            ///< Rows and columns on their own.
  kRandomResizedCrop,  ///< A random part, stretched; the middle where there is no chance.
};
/// By the job's "resize".
[[nodiscard]] ResizeMode resize_mode(std::string_view name);

/// Which part of an image is scaled to what size, and which part of that is taken.
struct ResizeWindow {
  struct Part {
    std::int64_t top = 0;
    std::int64_t left = 0;
    std::int64_t rows = 0;
    std::int64_t columns = 0;
    bool operator==(const Part&) const = default;
  };
  Part from;                     ///< In the image.
  std::int64_t scaled_rows = 0;  ///< What `from` is scaled to.
  std::int64_t scaled_columns = 0;
  std::int64_t top = 0;  ///< Of what is taken of that, with the size that is wanted.
  std::int64_t left = 0;
};
/// kCrop is torchvision's Resize of the shorter side and CenterCrop; kRandomResizedCrop its RandomResizedCrop with the
/// same bounds of area (0.08 to 1) and aspect (3/4 to 4/3), drawn from `chance`; without one it is kCrop.
[[nodiscard]] ResizeWindow resize_window(ResizeMode mode, std::int64_t rows, std::int64_t columns,
                                         const ImageShape& wanted, std::optional<std::uint64_t> chance);

/// Memory of one caller, used again for every image.
struct ResizeScratch {
  std::vector<std::int32_t> weights[2];  ///< Of columns and of rows.
  std::vector<std::int64_t> firsts[2];
  std::vector<std::uint8_t> bytes;
};

/// Writes wanted.count() bytes in planes. An image of one channel fills all that are wanted.
void resize_bilinear(const DecodedImage& image, const ResizeWindow& window, const ImageShape& wanted,
                     ResizeScratch& scratch, std::uint8_t* planes);

/// Of an image of one channel: wanted.plane() bytes.
void resize_nearest(const DecodedImage& image, const ResizeWindow& window, const ImageShape& wanted, std::uint8_t* out);

}  // namespace sgd::worker
