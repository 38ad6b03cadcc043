#pragma once
// JPEG and PNG files in memory, as other programs write them.

#include <png.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <jpeglib.h>

namespace sgd::test {

/// What a file is made from: rows x columns x channels bytes.
struct RawImage {
  int rows = 0;
  int columns = 0;
  int channels = 3;
  std::vector<std::uint8_t> pixels;
};

/// Smooth, so that JPEG keeps it: levels change by `step` from pixel to pixel.
inline RawImage smooth_image(int rows, int columns, int channels, int step = 2) {
  RawImage image{rows, columns, channels, {}};
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column)
      for (int channel = 0; channel < channels; ++channel)
        image.pixels.push_back(static_cast<std::uint8_t>(40 + step * (row + column) + 30 * channel));
  return image;
}

struct JpegOptions {
  int quality = 95;
  bool is_progressive = false;
  bool is_arithmetic = false;
  bool has_adobe_marker = true;  ///< Of inks.
};

/// Of one (grey), three (colour) or four channels (inks).
inline std::string jpeg_file(const RawImage& image, const JpegOptions& options = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(image.columns);
  info.image_height = static_cast<JDIMENSION>(image.rows);
  info.input_components = image.channels;
  info.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : image.channels == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, options.quality, TRUE);
  if (!options.has_adobe_marker) info.write_Adobe_marker = FALSE;
  if (options.is_progressive) jpeg_simple_progression(&info);
  if (options.is_arithmetic) info.arith_code = TRUE;
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    const auto at =
        static_cast<std::size_t>(info.next_scanline) * static_cast<std::size_t>(image.columns * image.channels);
    auto* row = const_cast<JSAMPLE*>(image.pixels.data() + at);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string file(reinterpret_cast<const char*>(bytes), size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return file;
}

struct PngOptions {
  int color_type = PNG_COLOR_TYPE_RGB;
  int depth = 8;
  bool is_interlaced = false;
  std::vector<png_color> palette;
};

/// `rows`: the bytes of each row as PNG packs them.
inline std::string png_file(int columns, const std::vector<std::vector<std::uint8_t>>& rows,
                            const PngOptions& options) {
  std::string file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(
      png, &file,
      [](png_structp writer, png_bytep bytes, std::size_t count) {
        static_cast<std::string*>(png_get_io_ptr(writer))->append(reinterpret_cast<const char*>(bytes), count);
      },
      [](png_structp) {});
  png_set_IHDR(png, info, static_cast<png_uint_32>(columns), static_cast<png_uint_32>(rows.size()), options.depth,
               options.color_type, options.is_interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!options.palette.empty())
    png_set_PLTE(png, info, options.palette.data(), static_cast<int>(options.palette.size()));
  png_write_info(png, info);
  const int passes = png_set_interlace_handling(png);
  for (int pass = 0; pass < passes; ++pass)
    for (const auto& row : rows) png_write_row(png, row.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

/// Of one or three channels of 8 bits.
inline std::string png_file(const RawImage& image, bool is_interlaced = false) {
  std::vector<std::vector<std::uint8_t>> rows;
  const auto stride = static_cast<std::ptrdiff_t>(image.columns * image.channels);
  for (std::ptrdiff_t row = 0; row < image.rows; ++row)
    rows.emplace_back(image.pixels.begin() + row * stride, image.pixels.begin() + (row + 1) * stride);
  PngOptions options;
  options.color_type = image.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB;
  options.is_interlaced = is_interlaced;
  return png_file(image.columns, rows, options);
}

}  // namespace sgd::test
