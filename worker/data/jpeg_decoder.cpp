#include "worker/data/jpeg_decoder.hpp"

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <jpeglib.h>

#include <jerror.h>

namespace sgd::worker {
namespace {

/// A progressive image has some ten scans; each costs a pass over all of it, however few its bytes are.
constexpr int kJpegScansMax = 100;
/// Each block of 64 pixels takes a bit at least.
constexpr std::int64_t kJpegPixelsPerByte = 512;
constexpr std::int64_t kJpegBlockSide = 8;

struct JpegErrors {
  jpeg_error_mgr base;  ///< First: the library hands out its address.
  std::jmp_buf leave;
  char text[JMSG_LENGTH_MAX];
};

/// The library cannot go on after an error, and is in C.
[[noreturn]] void leave_jpeg(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  errors->base.format_message(info, errors->text);
  std::longjmp(errors->leave, 1);
}

void on_jpeg_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  ++info->err->num_warnings;
  // What is missing would be grey.
  if (info->err->msg_code == JWRN_JPEG_EOF) leave_jpeg(info);
}

void on_jpeg_progress(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kJpegScansMax) return;
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  std::snprintf(errors->text, sizeof errors->text, "more than %d scans", kJpegScansMax);
  std::longjmp(errors->leave, 1);
}

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

class JpegReader {
 public:
  JpegReader() {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = leave_jpeg;
    errors_.base.emit_message = on_jpeg_message;
    errors_.base.output_message = [](j_common_ptr) {};
    errors_.text[0] = '\0';
    progress_.progress_monitor = on_jpeg_progress;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  // An error jumps out of the next two: nothing with a destructor may live in them.
  bool read_header(const std::uint8_t* bytes, std::size_t count) {
    if (setjmp(errors_.leave) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.progress = &progress_;
    jpeg_mem_src(&info_, bytes, count);
    jpeg_read_header(&info_, TRUE);
    return true;
  }
  bool read_pixels(std::uint8_t* out, std::size_t stride) {
    if (setjmp(errors_.leave) != 0) return false;
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      row_ = out + info_.output_scanline * stride;
      jpeg_read_scanlines(&info_, &row_, 1);
    }
    return true;
  }

  [[nodiscard]] Error error() const { return Error{errors_.text}; }
  [[nodiscard]] jpeg_decompress_struct& info() { return info_; }

 private:
  jpeg_decompress_struct info_{};
  jpeg_progress_mgr progress_{};
  JpegErrors errors_{};
  JSAMPROW row_ = nullptr;
};

/// What the file holds, before memory is taken for it.
Status check_jpeg(const jpeg_decompress_struct& info, std::size_t file_bytes) {
  const auto rows = static_cast<std::int64_t>(info.image_height);
  const auto columns = static_cast<std::int64_t>(info.image_width);
  Status pixels = check_pixels(rows, columns);
  if (!pixels) return pixels;
  if (info.arith_code != 0) return Error{"arithmetic coding is not decoded: save it with Huffman coding"};
  const std::int64_t coded = rounded_up(rows, kJpegBlockSide * info.max_v_samp_factor) *
                             rounded_up(columns, kJpegBlockSide * info.max_h_samp_factor);
  if (coded > kJpegPixelsPerByte * static_cast<std::int64_t>(file_bytes))
    return Error{fmt::format("truncated: {} bytes cannot hold its {} x {} pixels", file_bytes, rows, columns)};
  return {};
}

std::uint8_t product(int a, int b) {
  const int scaled = a * b + 128;
  return static_cast<std::uint8_t>((scaled + (scaled >> 8)) >> 8);
}

/// From four channels to three, in place, as Pillow: inks are stored inverted, as Adobe's programs began to, whether
/// their marker is there or not.
void make_colour(std::vector<std::uint8_t>& pixels) {
  std::size_t to = 0;
  for (std::size_t from = 0; from + 3 < pixels.size(); from += 4) {
    const auto ink = [&](std::size_t channel) { return 255 - pixels[from + channel]; };
    const int white = 255 - ink(3);
    const int inks[3] = {ink(0), ink(1), ink(2)};
    for (const int one : inks) pixels[to++] = static_cast<std::uint8_t>(white - product(one, white));
  }
  pixels.resize(to);
}

}  // namespace

bool is_jpeg(std::span<const std::uint8_t> file) {
  return file.size() >= 3 && file[0] == 0xff && file[1] == 0xd8 && file[2] == 0xff;
}

Status decode_jpeg(std::span<const std::uint8_t> file, DecodedImage& out) {
  JpegReader reader;
  if (!reader.read_header(file.data(), file.size())) return reader.error();
  jpeg_decompress_struct& info = reader.info();
  Status fits = check_jpeg(info, file.size());
  if (!fits) return fits;
  const bool is_print = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  const bool is_grey = info.jpeg_color_space == JCS_GRAYSCALE;
  info.out_color_space = is_print ? JCS_CMYK : is_grey ? JCS_GRAYSCALE : JCS_RGB;
  const std::int64_t stored = is_print ? 4 : is_grey ? 1 : 3;
  out.rows = info.image_height;
  out.columns = info.image_width;
  out.channels = is_grey ? 1 : 3;
  out.pixels.resize(static_cast<std::size_t>(out.rows * out.columns * stored));
  if (!reader.read_pixels(out.pixels.data(), static_cast<std::size_t>(out.columns * stored))) return reader.error();
  if (is_print) make_colour(out.pixels);
  return {};
}

}  // namespace sgd::worker
