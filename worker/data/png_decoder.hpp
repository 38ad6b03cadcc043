#pragma once
// PNG files by libpng: of any colour type and depth, to bytes. Of 16 bits the upper eight are taken, transparency is
// left out, gamma is not applied: the pixels are Pillow's. Checksums must be right, and the file whole.

#include <cstdint>
#include <span>

#include "worker/data/decoded_image.hpp"

namespace sgd::worker {

[[nodiscard]] bool is_png(std::span<const std::uint8_t> file);

/// `out` has one or three channels; with kClass one, of the values stored, at most 8 bits each. Errors have no place:
/// "truncated", in the library's words.
[[nodiscard]] Status decode_png(std::span<const std::uint8_t> file, PixelKind kind, DecodedImage& out);

}  // namespace sgd::worker
