#pragma once
// JPEG files by libjpeg-turbo, with its default (accurate) arithmetic: the pixels are Pillow's. Baseline and
// progressive, grey, colour and CMYK (as printers' photographs have it). An Exif orientation is not looked at. A file
// whose end is missing is an error; other damage that the decoder repairs is not, as in Pillow.

#include <cstdint>
#include <span>

#include "worker/data/decoded_image.hpp"

namespace sgd::worker {

[[nodiscard]] bool is_jpeg(std::span<const std::uint8_t> file);

/// `out` has one or three channels, whatever is wanted. Errors have no place: "truncated", in the library's words.
[[nodiscard]] Status decode_jpeg(std::span<const std::uint8_t> file, DecodedImage& out);

}  // namespace sgd::worker
