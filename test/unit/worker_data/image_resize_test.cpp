// Windows and interpolation by tables of numbers that Pillow and torchvision give.

#include "worker/data/image_resize.hpp"

#include <zlib.h>
#include <catch2/catch.hpp>

#include <map>
#include <numeric>

namespace sgd::worker {
namespace {

using PixelBytes = std::vector<std::uint8_t>;

DecodedImage grey_image(std::int64_t rows, std::int64_t columns, PixelBytes pixels) {
  return {rows, columns, 1, std::move(pixels)};
}

/// Values without an order that an interpolation could hide behind.
DecodedImage mixed_image(std::int64_t rows, std::int64_t columns, std::int64_t channels) {
  DecodedImage image{rows, columns, channels, {}};
  for (std::int64_t i = 0; i < rows * columns * channels; ++i)
    image.pixels.push_back(static_cast<std::uint8_t>(i * i * 7 + i * 13 + 5));
  return image;
}

PixelBytes resized(const DecodedImage& image, ResizeMode mode, const ImageShape& wanted) {
  ResizeScratch scratch;
  PixelBytes out(wanted.count(), 99);
  resize_bilinear(image, resize_window(mode, image.rows, image.columns, wanted, std::nullopt), wanted, scratch,
                  out.data());
  return out;
}

ResizeWindow crop(std::int64_t rows, std::int64_t columns, std::int64_t size_rows, std::int64_t size_columns) {
  return resize_window(ResizeMode::kCrop, rows, columns, {3, size_rows, size_columns}, std::nullopt);
}

}  // namespace

TEST_CASE("resize: an image of the size that is wanted stays as it is") {
  const DecodedImage image = mixed_image(5, 7, 1);
  for (const ResizeMode mode : {ResizeMode::kCrop, ResizeMode::kStretch, ResizeMode::kRandomResizedCrop})
    CHECK(resized(image, mode, {1, 5, 7}) == image.pixels);
  const DecodedImage colour = mixed_image(2, 3, 3);
  const PixelBytes planes = resized(colour, ResizeMode::kStretch, {3, 2, 3});
  for (std::size_t pixel = 0; pixel < 6; ++pixel)
    for (std::size_t channel = 0; channel < 3; ++channel)
      CHECK(planes[channel * 6 + pixel] == colour.pixels[pixel * 3 + channel]);
}

TEST_CASE("resize: the pixels are those of Pillow's BILINEAR") {
  // What Pillow 13.0 gives for resize(..., Image.BILINEAR).
  CHECK(resized(mixed_image(5, 7, 1), ResizeMode::kStretch, {1, 3, 4}) ==
        PixelBytes{62, 89, 167, 136, 112, 185, 188, 186, 128, 138, 168, 121});
  CHECK(resized(mixed_image(5, 7, 1), ResizeMode::kStretch, {1, 9, 8}) ==
        PixelBytes{5,   21,  48,  86,  134, 193, 214, 79,  64,  38,  77,  96,  135, 196, 187, 78,  163, 65,
                   126, 112, 137, 200, 141, 77,  112, 128, 174, 155, 166, 204, 173, 153, 23,  199, 221, 206,
                   202, 208, 225, 249, 31,  135, 179, 211, 193, 166, 204, 157, 58,  91,  136, 207, 186, 135,
                   179, 84,  162, 124, 92,  167, 194, 145, 139, 88,  225, 144, 66,  143, 198, 151, 115, 91});
  CHECK(resized(mixed_image(4, 9, 3), ResizeMode::kStretch, {3, 2, 3}) ==
        PixelBytes{91, 147, 149, 115, 119, 142, 154, 134, 124, 151, 95, 134, 131, 114, 172, 110, 129, 77});
  const auto checksum = [](const PixelBytes& bytes) {
    return ::crc32(0, bytes.data(), static_cast<unsigned>(bytes.size()));
  };
  CHECK(checksum(resized(mixed_image(211, 301, 3), ResizeMode::kStretch, {3, 48, 64})) == 0x5051bff2);
  // Resize to the shorter side, and CenterCrop.
  CHECK(checksum(resized(mixed_image(211, 301, 3), ResizeMode::kCrop, {3, 48, 48})) == 0x184e294d);
  CHECK(checksum(resized(mixed_image(301, 211, 3), ResizeMode::kCrop, {3, 40, 90})) == 0x8b352e66);
}

TEST_CASE("resize: a grey image fills all channels") {
  const PixelBytes planes = resized(grey_image(2, 2, {0, 100, 200, 40}), ResizeMode::kStretch, {3, 1, 1});
  CHECK(planes == PixelBytes{85, 85, 85});
}

TEST_CASE("resize: the middle of what covers the size, as Resize and CenterCrop") {
  // 500 x 375 pixels (rows x columns) to 224: 298 x 224, and 37 rows cut off at the top.
  const ResizeWindow high = crop(500, 375, 224, 224);
  CHECK(high.scaled_rows == 298);
  CHECK(high.scaled_columns == 224);
  CHECK(high.top == 37);
  CHECK(high.left == 0);
  const ResizeWindow wide = crop(375, 500, 224, 224);
  CHECK(wide.scaled_rows == 224);
  CHECK(wide.scaled_columns == 298);
  CHECK(wide.left == 37);
  // Halves go to the even number: (227 - 224) / 2 is 2, (225 - 224) / 2 is 0.
  CHECK(crop(227, 224, 224, 224).top == 2);
  CHECK(crop(225, 224, 224, 224).top == 0);
  // Not a square: the side that would be too short decides.
  const ResizeWindow strip = crop(100, 100, 50, 200);
  CHECK(strip.scaled_rows == 200);
  CHECK(strip.scaled_columns == 200);
  CHECK(strip.top == 75);
  // A line of pixels, and one pixel.
  CHECK(crop(1, 60000, 8, 8).scaled_columns == 480000);
  CHECK(crop(1, 1, 8, 8).scaled_rows == 8);
}

TEST_CASE("resize: random parts keep their bounds and need a chance") {
  const ImageShape wanted{3, 32, 32};
  std::map<std::int64_t, int> tops;
  for (std::uint64_t chance = 0; chance < 2000; ++chance) {
    const ResizeWindow window = resize_window(ResizeMode::kRandomResizedCrop, 60, 80, wanted, chance);
    const ResizeWindow::Part& part = window.from;
    REQUIRE((part.top >= 0 && part.left >= 0 && part.rows > 0 && part.columns > 0));
    REQUIRE((part.top + part.rows <= 60 && part.left + part.columns <= 80));
    const double share = static_cast<double>(part.rows * part.columns) / (60 * 80);
    REQUIRE((share > 0.075 && share <= 1));
    const double aspect = static_cast<double>(part.columns) / static_cast<double>(part.rows);
    REQUIRE((aspect > 0.70 && aspect < 1.42));  // Of whole pixels.
    REQUIRE((window.scaled_rows == 32 && window.scaled_columns == 32 && window.top == 0 && window.left == 0));
    ++tops[part.top];
  }
  CHECK(tops.size() > 30);
  const auto part_of = [&](std::uint64_t chance) {
    return resize_window(ResizeMode::kRandomResizedCrop, 60, 80, wanted, chance).from;
  };
  CHECK(part_of(7) == part_of(7));
  // Written down: a run that goes on sees the parts that it saw before.
  CHECK(part_of(7) == ResizeWindow::Part{10, 6, 37, 28});
  CHECK(resize_window(ResizeMode::kRandomResizedCrop, 60, 80, wanted, std::nullopt).scaled_columns == 42);
  // Nothing of a line has an aspect near 1: its middle.
  const ResizeWindow line = resize_window(ResizeMode::kRandomResizedCrop, 1, 101, wanted, 5);
  CHECK(line.from == ResizeWindow::Part{0, 50, 1, 1});
  CHECK(resize_mode("crop") == ResizeMode::kCrop);
  CHECK(resize_mode("stretch") == ResizeMode::kStretch);
  CHECK(resize_mode("random_resized_crop") == ResizeMode::kRandomResizedCrop);
}

TEST_CASE("resize: masks take the nearest pixel") {
  const auto nearest = [](const DecodedImage& image, std::int64_t rows, std::int64_t columns) {
    const ImageShape wanted{3, rows, columns};
    PixelBytes out(wanted.count() / 3);
    resize_nearest(image, resize_window(ResizeMode::kStretch, image.rows, image.columns, wanted, std::nullopt), wanted,
                   out.data());
    return out;
  };
  const DecodedImage mask = grey_image(2, 3, {1, 2, 3, 4, 5, 6});
  CHECK(nearest(mask, 2, 3) == mask.pixels);
  CHECK(nearest(mask, 4, 3) == PixelBytes{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6});
  CHECK(nearest(mask, 1, 1) == PixelBytes{5});
  CHECK(nearest(mask, 1, 2) == PixelBytes{4, 6});
  // A crop takes the same part as of the image.
  const ImageShape wanted{3, 2, 2};
  PixelBytes out(4);
  resize_nearest(mask, resize_window(ResizeMode::kCrop, 2, 3, wanted, std::nullopt), wanted, out.data());
  CHECK(out == PixelBytes{1, 2, 4, 5});
}

}  // namespace sgd::worker
