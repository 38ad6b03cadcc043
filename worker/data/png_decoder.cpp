#include "worker/data/png_decoder.hpp"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <fmt/format.h>
#include <png.h>

#include "common/base/assert.hpp"

namespace sgd::worker {
namespace {

/// Deflate makes no more of a byte.
constexpr std::int64_t kPngBytesPerByte = 1032;
constexpr png_uint_32 kPngSideMax = 0x7fffffff;
/// Of one chunk that is no pixels; only the palette's is needed, with 768.
constexpr std::size_t kPngChunkBytesMax = 64 << 10;

class PngReader {
 public:
  PngReader() {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
    if (png_ != nullptr) info_ = png_create_info_struct(png_);
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  // An error jumps out of the next three: nothing with a destructor may live in them.
  bool read_header(const std::uint8_t* bytes, std::size_t count) {
    if (info_ == nullptr) return false;
    if (setjmp(leave_) != 0) return false;
    next_ = bytes;
    left_ = count;
    png_set_read_fn(png_, this, on_read);
    png_set_user_limits(png_, kPngSideMax, kPngSideMax);
    png_set_chunk_malloc_max(png_, kPngChunkBytesMax);
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // Texts, profiles, times.
    png_read_info(png_, info_);
    return true;
  }
  bool prepare(bool keeps_values) {
    if (setjmp(leave_) != 0) return false;
    if (keeps_values) {
      png_set_packing(png_);
    } else {
      const int type = png_get_color_type(png_, info_);
      if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
      if (type == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png_);
      png_set_strip_16(png_);
      png_set_strip_alpha(png_);
    }
    passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool read_pixels(std::uint8_t* out, std::size_t rows, std::size_t stride) {
    if (setjmp(leave_) != 0) return false;
    for (int pass = 0; pass < passes_; ++pass)
      for (std::size_t row = 0; row < rows; ++row) png_read_row(png_, out + row * stride, nullptr);
    png_read_end(png_, nullptr);  // Checks what is behind the last row.
    return true;
  }

  [[nodiscard]] Error error() const { return Error{text_[0] == '\0' ? "no memory" : text_}; }
  [[nodiscard]] std::int64_t rows() const { return png_get_image_height(png_, info_); }
  [[nodiscard]] std::int64_t columns() const { return png_get_image_width(png_, info_); }
  [[nodiscard]] int color_type() const { return png_get_color_type(png_, info_); }
  [[nodiscard]] int depth() const { return png_get_bit_depth(png_, info_); }
  [[nodiscard]] int channels() const { return png_get_channels(png_, info_); }
  [[nodiscard]] std::size_t row_bytes() const { return png_get_rowbytes(png_, info_); }

 private:
  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto* self = static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(self->text_, sizeof self->text_, "%s", message);
    std::longjmp(self->leave_, 1);
  }
  static void on_read(png_structp png, png_bytep out, std::size_t count) {
    auto* self = static_cast<PngReader*>(png_get_io_ptr(png));
    if (count > self->left_) png_error(png, "truncated");
    std::memcpy(out, self->next_, count);
    self->next_ += count;
    self->left_ -= count;
  }

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf leave_;
  const std::uint8_t* next_ = nullptr;
  std::size_t left_ = 0;
  int passes_ = 1;
  char text_[128] = "";
};

/// What the file holds, before memory is taken for it.
Status check_png(const PngReader& reader, std::size_t file_bytes) {
  Status pixels = check_pixels(reader.rows(), reader.columns());
  if (!pixels) return pixels;
  const auto unpacked = reader.rows() * static_cast<std::int64_t>(reader.row_bytes() + 1);
  if (unpacked > kPngBytesPerByte * static_cast<std::int64_t>(file_bytes))
    return Error{
        fmt::format("truncated: {} bytes cannot hold its {} x {} pixels", file_bytes, reader.rows(), reader.columns())};
  return {};
}

Status check_mask(const PngReader& reader) {
  if (reader.depth() > 8) return Error{"a mask with 16 bits a pixel, expected 8 at most"};
  if (reader.color_type() == PNG_COLOR_TYPE_PALETTE || reader.color_type() == PNG_COLOR_TYPE_GRAY) return {};
  return Error{
      fmt::format("a mask with {} channels, expected one: a pixel's value, or its place in a palette, is its "
                  "class",
                  reader.channels())};
}

}  // namespace

bool is_png(std::span<const std::uint8_t> file) {
  constexpr std::uint8_t signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  return file.size() >= sizeof signature && std::equal(std::begin(signature), std::end(signature), file.begin());
}

Status decode_png(std::span<const std::uint8_t> file, PixelKind kind, DecodedImage& out) {
  PngReader reader;
  if (!reader.read_header(file.data(), file.size())) return reader.error();
  Status fits = check_png(reader, file.size());
  if (fits.ok() && kind == PixelKind::kClass) fits = check_mask(reader);
  if (!fits) return fits;
  if (!reader.prepare(kind == PixelKind::kClass)) return reader.error();
  out.rows = reader.rows();
  out.columns = reader.columns();
  out.channels = reader.channels();
  const std::size_t stride = reader.row_bytes();
  SGD_ASSERT(stride == static_cast<std::size_t>(out.columns * out.channels));
  out.pixels.resize(stride * static_cast<std::size_t>(out.rows));
  if (!reader.read_pixels(out.pixels.data(), static_cast<std::size_t>(out.rows), stride)) return reader.error();
  return {};
}

}  // namespace sgd::worker
