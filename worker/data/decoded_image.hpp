#pragma once
// The pixels of an image file as bytes, and the limits that hold before memory for them is taken: a file of some
// kilobytes may claim to hold gigabytes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.hpp"

namespace sgd::worker {

/// Pixels of an image, 200 MB in colour: more than any camera's, and less than a worker's memory.
inline constexpr std::int64_t kImagePixelsMax = std::int64_t{1} << 26;
/// Pixels of a side, as JPEG's own: what resizing takes grows with the longer one.
inline constexpr std::int64_t kImageSideMax = 65535;

/// What is wanted of the pixels.
enum class PixelKind {
  kGrey,    ///< One channel; colours by their luminance.
  kColour,  ///< Red, green, blue; a grey image keeps its one channel.
  kClass,   ///< The value that is stored, of a palette or in grey: a class.
};

struct DecodedImage {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t channels = 1;         ///< 1 or 3.
  std::vector<std::uint8_t> pixels;  ///< Rows x columns x channels.
};

/// An error when an image claims more pixels than the limits.
[[nodiscard]] Status check_pixels(std::int64_t rows, std::int64_t columns);

/// From red, green and blue to one channel, in place: (19595 R + 38470 G + 7471 B + 32768) / 65536, as Pillow's "L".
void make_grey(DecodedImage& image);

}  // namespace sgd::worker
