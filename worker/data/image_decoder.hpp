#pragma once
// Image files by their first bytes, whatever their names say: a photograph may be a PNG that is called .jpg.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "worker/data/decoded_image.hpp"

namespace sgd::worker {

/// Longest image file that is read.
inline constexpr std::int64_t kImageFileBytesMax = std::int64_t{1} << 28;

/// A whole file, in `bytes`, whose memory is used again. Errors name it.
[[nodiscard]] Status read_image_file(const std::string& path, std::vector<std::uint8_t>& bytes);

/// Errors have no place: "truncated".
[[nodiscard]] Status decode_image(std::span<const std::uint8_t> file, PixelKind kind, DecodedImage& out);

}  // namespace sgd::worker
