#include "worker/data/decoded_image.hpp"

#include <fmt/format.h>

namespace sgd::worker {

Status check_pixels(std::int64_t rows, std::int64_t columns) {
  if (rows < 1 || columns < 1) return Error{fmt::format("an image of {} x {} pixels", rows, columns)};
  if (rows > kImageSideMax || columns > kImageSideMax)
    return Error{fmt::format("an image of {} x {} pixels, expected at most {} a side: make it smaller", rows, columns,
                             kImageSideMax)};
  if (rows <= kImagePixelsMax / columns) return {};
  return Error{fmt::format("an image of {} x {} pixels, expected at most {} in all: make it smaller", rows, columns,
                           kImagePixelsMax)};
}

void make_grey(DecodedImage& image) {
  const std::size_t count = static_cast<std::size_t>(image.rows * image.columns);
  const std::uint8_t* from = image.pixels.data();
  for (std::size_t i = 0; i < count; ++i, from += 3) {
    const std::uint32_t sum = 19595u * from[0] + 38470u * from[1] + 7471u * from[2] + 32768u;
    image.pixels[i] = static_cast<std::uint8_t>(sum >> 16);
  }
  image.pixels.resize(count);
  image.channels = 1;
}

}  // namespace sgd::worker
