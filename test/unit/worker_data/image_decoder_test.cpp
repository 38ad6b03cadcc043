// Image files of every kind as bytes, and what of them is refused before memory is taken.

#include "worker/data/image_decoder.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <numeric>

#include "image_bytes.hpp"
#include "test/unit/worker/temporary_directory.hpp"
#include "worker/data/jpeg_decoder.hpp"
#include "worker/data/png_decoder.hpp"

namespace sgd::worker {
namespace {

using FileBytes = std::vector<std::uint8_t>;

FileBytes file_of(const std::string& text) {
  return {text.begin(), text.end()};
}

/// The pixels, or the error.
std::string decoded_words(const std::string& file, PixelKind kind, DecodedImage& image) {
  const Status decoded = decode_image(file_of(file), kind, image);
  return decoded.ok() ? "" : decoded.error().message;
}

std::string refusal_of(const std::string& file, PixelKind kind = PixelKind::kColour) {
  DecodedImage image;
  return decoded_words(file, kind, image);
}

DecodedImage decoded_image(const std::string& file, PixelKind kind = PixelKind::kColour) {
  DecodedImage image;
  CHECK(decoded_words(file, kind, image) == "");
  return image;
}

int largest_difference(const FileBytes& one, const FileBytes& other) {
  REQUIRE(one.size() == other.size());
  int most = 0;
  for (std::size_t i = 0; i < one.size(); ++i) most = std::max(most, std::abs(int{one[i]} - int{other[i]}));
  return most;
}

/// A PNG file of which the header alone is right.
std::string png_claiming(std::uint32_t columns, std::uint32_t rows, char depth, char type) {
  const std::string whole = test::png_file(test::smooth_image(2, 2, 1));
  std::string header = "IHDR";
  for (const std::uint32_t size : {columns, rows})
    for (int shift = 24; shift >= 0; shift -= 8) header.push_back(static_cast<char>(size >> shift & 0xff));
  header += std::string{depth, type, 0, 0, 0};
  std::uint32_t crc = 0xffffffff;
  for (const char byte : header) {
    crc ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  for (int shift = 24; shift >= 0; shift -= 8) header.push_back(static_cast<char>(~crc >> shift & 0xff));
  return whole.substr(0, 12) + header + whole.substr(33);
}

/// With other sizes in its frame header.
std::string jpeg_claiming(std::string file, std::uint16_t columns, std::uint16_t rows) {
  const std::size_t frame = file.find("\xff\xc0");
  REQUIRE(frame != std::string::npos);
  const std::uint16_t sizes[] = {rows, columns};
  for (std::size_t i = 0; i < 2; ++i) {
    file[frame + 5 + 2 * i] = static_cast<char>(sizes[i] >> 8);
    file[frame + 6 + 2 * i] = static_cast<char>(sizes[i] & 0xff);
  }
  return file;
}

}  // namespace

TEST_CASE("image files: PNG gives back what was stored") {
  const test::RawImage colour = test::smooth_image(5, 7, 3);
  for (const bool is_interlaced : {false, true}) {
    const DecodedImage image = decoded_image(test::png_file(colour, is_interlaced));
    CHECK(image.rows == 5);
    CHECK(image.columns == 7);
    CHECK(image.channels == 3);
    CHECK(image.pixels == colour.pixels);
  }
  const test::RawImage grey = test::smooth_image(3, 4, 1);
  CHECK(decoded_image(test::png_file(grey)).pixels == grey.pixels);
  CHECK(decoded_image(test::png_file(grey)).channels == 1);
  CHECK(decoded_image(test::png_file(grey), PixelKind::kGrey).pixels == grey.pixels);
  // Pillow's convert("L") of (40, 70, 100) and (42, 72, 102).
  const DecodedImage turned = decoded_image(test::png_file(test::smooth_image(1, 2, 3)), PixelKind::kGrey);
  CHECK(turned.channels == 1);
  CHECK(turned.pixels == FileBytes{64, 66});
}

TEST_CASE("image files: PNG of other depths and types become bytes") {
  const auto pixels = [](int columns, const FileBytes& row, const test::PngOptions& options) {
    return decoded_image(test::png_file(columns, {row}, options)).pixels;
  };
  CHECK(pixels(4, {0xa0}, {PNG_COLOR_TYPE_GRAY, 1, false, {}}) == FileBytes{255, 0, 255, 0});
  CHECK(pixels(4, {0x1b}, {PNG_COLOR_TYPE_GRAY, 2, false, {}}) == FileBytes{0, 85, 170, 255});
  CHECK(pixels(2, {1, 200, 2, 100}, {PNG_COLOR_TYPE_GRAY, 16, false, {}}) == FileBytes{1, 2});
  CHECK(pixels(2, {9, 128, 8, 0}, {PNG_COLOR_TYPE_GRAY_ALPHA, 8, false, {}}) == FileBytes{9, 8});
  CHECK(pixels(1, {1, 2, 3, 4}, {PNG_COLOR_TYPE_RGBA, 8, false, {}}) == FileBytes{1, 2, 3});
  CHECK(pixels(1, {1, 9, 2, 9, 3, 9}, {PNG_COLOR_TYPE_RGB, 16, false, {}}) == FileBytes{1, 2, 3});
  CHECK(pixels(2, {0x10}, {PNG_COLOR_TYPE_PALETTE, 4, false, {{1, 2, 3}, {4, 5, 6}}}) == FileBytes{4, 5, 6, 1, 2, 3});
}

TEST_CASE("image files: a mask's pixels are the values that are stored") {
  const auto values = [](int columns, const FileBytes& row, const test::PngOptions& options) {
    return decoded_image(test::png_file(columns, {row}, options), PixelKind::kClass).pixels;
  };
  CHECK(values(4, {0x1b}, {PNG_COLOR_TYPE_GRAY, 2, false, {}}) == FileBytes{0, 1, 2, 3});
  CHECK(values(3, {0, 20, 255}, {PNG_COLOR_TYPE_GRAY, 8, false, {}}) == FileBytes{0, 20, 255});
  CHECK(values(2, {0x10}, {PNG_COLOR_TYPE_PALETTE, 4, false, {{1, 2, 3}, {4, 5, 6}}}) == FileBytes{1, 0});
  CHECK_THAT(refusal_of(test::png_file(test::smooth_image(2, 2, 3)), PixelKind::kClass),
             Catch::Contains("a mask with 3 channels, expected one"));
  CHECK_THAT(refusal_of(test::png_file(1, {{1, 2}}, {PNG_COLOR_TYPE_GRAY, 16, false, {}}), PixelKind::kClass),
             Catch::Contains("16 bits a pixel, expected 8 at most"));
  CHECK(refusal_of(test::jpeg_file(test::smooth_image(8, 8, 1)), PixelKind::kClass) == "not a PNG file");
}

TEST_CASE("image files: JPEG is near what was stored, in colour, grey and inks") {
  const test::RawImage colour = test::smooth_image(24, 33, 3);
  for (const bool is_progressive : {false, true}) {
    const DecodedImage image = decoded_image(test::jpeg_file(colour, {95, is_progressive, false}));
    CHECK(image.rows == 24);
    CHECK(image.columns == 33);
    CHECK(image.channels == 3);
    CHECK(largest_difference(image.pixels, colour.pixels) < 8);
  }
  const test::RawImage grey = test::smooth_image(16, 16, 1);
  const DecodedImage one = decoded_image(test::jpeg_file(grey));
  CHECK(one.channels == 1);
  CHECK(largest_difference(one.pixels, grey.pixels) < 4);
  // 255 is no ink, with Adobe's marker and without: all of cyan and yellow, no magenta, and 200 of black.
  test::RawImage inks{8, 8, 4, {}};
  for (int i = 0; i < 64; ++i) inks.pixels.insert(inks.pixels.end(), {0, 255, 0, 55});
  for (const bool has_marker : {true, false}) {
    const std::string file = test::jpeg_file(inks, {100, false, false, has_marker});
    CHECK((file.find("Adobe") != std::string::npos) == has_marker);
    const DecodedImage print = decoded_image(file);
    CHECK(print.channels == 3);
    REQUIRE(print.pixels.size() == 8 * 8 * 3);
    CHECK(largest_difference(FileBytes(print.pixels.begin(), print.pixels.begin() + 3), {0, 55, 0}) < 4);
  }
}

TEST_CASE("image files: the pixels are Pillow's") {
  // CRC-32 of what Pillow 13.0 gives for convert("RGB") and convert("L") of files that are kept for fuzzing.
  struct Kept {
    const char* name;
    std::uint32_t colour;
    std::uint32_t grey;
  };
  for (const Kept& kept : {Kept{"jpeg/colour", 0xbff40afa, 0x8369be6e}, Kept{"jpeg/grey", 0x4f5565ee, 0x355d967c},
                           Kept{"jpeg/inks", 0xbb01e77c, 0xa0387ea5}, Kept{"jpeg/progressive", 0xb0ba0658, 0x07513944},
                           Kept{"png/colour", 0xdfd660e3, 0xba7dbc13}, Kept{"png/grey-1", 0xbfa02d73, 0x9c6e38b2},
                           Kept{"png/interlaced", 0x6e5c18e8, 0x6f3d7185}, Kept{"png/alpha-16", 0xf494fef2, 0x28a8d731},
                           Kept{"png/palette-2", 0x761bbd27, 0x0406b10f}}) {
    INFO(kept.name);
    const std::string file = testing::read_file(std::string(SGD_SOURCE_DIR "/test/fuzz/corpus/") + kept.name);
    const DecodedImage colour = decoded_image(file);
    FileBytes pixels;
    for (const std::uint8_t value : colour.pixels) pixels.insert(pixels.end(), colour.channels == 1 ? 3 : 1, value);
    CHECK(::crc32(0, pixels.data(), static_cast<unsigned>(pixels.size())) == kept.colour);
    const FileBytes grey = decoded_image(file, PixelKind::kGrey).pixels;
    CHECK(::crc32(0, grey.data(), static_cast<unsigned>(grey.size())) == kept.grey);
  }
}

TEST_CASE("image files: the kind is told by the first bytes") {
  CHECK(is_jpeg(file_of(test::jpeg_file(test::smooth_image(8, 8, 1)))));
  CHECK(is_png(file_of(test::png_file(test::smooth_image(8, 8, 1)))));
  CHECK(refusal_of("") == "neither a JPEG nor a PNG file");
  CHECK(refusal_of("RIFF    WEBPVP8 ") == "neither a JPEG nor a PNG file");
}

TEST_CASE("image files: what is cut or changed is refused") {
  const std::string jpeg = test::jpeg_file(test::smooth_image(64, 64, 3));
  CHECK_THAT(refusal_of(jpeg.substr(0, jpeg.size() - 20)), Catch::Contains("Premature end"));
  CHECK_FALSE(refusal_of(jpeg.substr(0, 100)).empty());
  const std::string png = test::png_file(test::smooth_image(64, 64, 3));
  CHECK(refusal_of(png.substr(0, png.size() - 20)) == "truncated");
  CHECK(refusal_of(png.substr(0, 20)) == "truncated");
  std::string changed = png;
  changed[png.size() / 2] = static_cast<char>(changed[png.size() / 2] ^ 1);
  CHECK_FALSE(refusal_of(changed).empty());
  CHECK_THAT(refusal_of(test::jpeg_file(test::smooth_image(8, 8, 3), {95, false, true})),
             Catch::Contains("arithmetic coding is not decoded"));
}

TEST_CASE("image files: sizes are bounded before memory is taken") {
  // Above kImagePixelsMax and kImageSideMax.
  CHECK_THAT(refusal_of(png_claiming(65535, 65535, 8, 2)),
             Catch::Contains("65535 x 65535 pixels, expected at most 67108864 in all"));
  CHECK_THAT(refusal_of(png_claiming(1, 65536, 8, 2)),
             Catch::Contains("65536 x 1 pixels, expected at most 65535 a side"));
  CHECK_THAT(refusal_of(png_claiming(1 << 30, 1 << 30, 8, 2)), Catch::Contains("expected at most"));
  const std::string jpeg = test::jpeg_file(test::smooth_image(8, 8, 3));
  CHECK_THAT(refusal_of(jpeg_claiming(jpeg, 65500, 65500)), Catch::Contains("expected at most 67108864"));
  // Below it, of files that cannot hold as many.
  CHECK_THAT(refusal_of(png_claiming(8000, 8000, 8, 2)), Catch::Contains("bytes cannot hold its 8000 x 8000 pixels"));
  CHECK_THAT(refusal_of(jpeg_claiming(jpeg, 8000, 8000)), Catch::Contains("bytes cannot hold its 8000 x 8000 pixels"));
}

TEST_CASE("image files: a progressive image has a limit of scans") {
  std::string file = test::jpeg_file(test::smooth_image(16, 16, 1), {95, true, false});
  const std::size_t scan = file.find("\xff\xda");
  const std::size_t end = file.size() - 2;
  REQUIRE(scan != std::string::npos);
  // The last scan again and again: kJpegScansMax of them are too many.
  const std::string last = file.substr(file.rfind("\xff\xda"), end - file.rfind("\xff\xda"));
  std::string many = file.substr(0, end);
  for (int i = 0; i < 100; ++i) many += last;
  CHECK(refusal_of(many + file.substr(end)) == "more than 100 scans");
}

TEST_CASE("image files: what PNG holds beside the image is passed over") {
  // A text of a megabyte is passed over.
  const std::string png = test::png_file(test::smooth_image(4, 4, 1));
  std::string text = "tEXt" + std::string("key\0", 4) + std::string(1 << 20, 'x');
  std::uint32_t crc = 0xffffffff;
  for (const char byte : text) {
    crc ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  const auto length = static_cast<std::uint32_t>(text.size() - 4);
  std::string chunk;
  for (int shift = 24; shift >= 0; shift -= 8) chunk.push_back(static_cast<char>(length >> shift & 0xff));
  chunk += text;
  for (int shift = 24; shift >= 0; shift -= 8) chunk.push_back(static_cast<char>(~crc >> shift & 0xff));
  CHECK(decoded_image(png.substr(0, 33) + chunk + png.substr(33)).rows == 4);
}

TEST_CASE("image files: reading names the file") {
  const testing::TemporaryDirectory folder;
  FileBytes bytes;
  testing::write_file(folder.file("a"), "some bytes");
  CHECK(read_image_file(folder.file("a"), bytes).ok());
  CHECK(bytes == file_of("some bytes"));
  CHECK_THAT(read_image_file(folder.file("b"), bytes).error().message,
             Catch::Contains("data file ") && Catch::Contains("No such file"));
  CHECK_THAT(read_image_file(folder.path().string(), bytes).error().message, Catch::Contains("is not a regular file"));
  // Nobody ever writes into this one.
  REQUIRE(::mkfifo(folder.file("pipe").c_str(), 0600) == 0);
  CHECK_THAT(read_image_file(folder.file("pipe"), bytes).error().message, Catch::Contains("is not a regular file"));
  // One byte more than kImageFileBytesMax, without taking room.
  std::filesystem::resize_file(folder.file("a"), kImageFileBytesMax + 1);
  CHECK_THAT(read_image_file(folder.file("a"), bytes).error().message,
             Catch::Contains("has 268435457 bytes, expected an image of at most 268435456"));
}

}  // namespace sgd::worker
