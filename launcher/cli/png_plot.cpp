#include "launcher/cli/png_plot.hpp"

#include <png.h>

#include <array>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

#include "launcher/cli/dot_canvas.hpp"
#include "launcher/cli/glyphs.hpp"

namespace sgd::cli {
namespace {

using Color = std::array<std::uint8_t, 3>;

constexpr Color kInk = {40, 40, 40};
constexpr Color kAxis = {170, 170, 170};
constexpr std::array<Color, 5> kCurves = {
    {{31, 97, 184}, {196, 78, 16}, {20, 122, 84}, {146, 62, 158}, {120, 100, 20}}};

// Pixels of the image and of a panel's parts.
constexpr int kWidth = 960;
constexpr int kPanel = 260;
constexpr int kLeft = 120;
constexpr int kRight = 20;
constexpr int kTop = 34;
constexpr int kBottom = 34;
constexpr int kDot = 2;  ///< Of a letter.
constexpr int kLetter = (kGlyphColumns + 1) * kDot;

class Picture {
 public:
  explicit Picture(int height) : height_(height), bytes_(static_cast<std::size_t>(kWidth * height) * 3, 255) {}

  void put(int x, int y, const Color& color) {
    if (x < 0 || y < 0 || x >= kWidth || y >= height_) return;
    std::memcpy(bytes_.data() + static_cast<std::size_t>(y * kWidth + x) * 3, color.data(), color.size());
  }
  void square(int x, int y, int side, const Color& color) {
    for (int down = 0; down < side; ++down)
      for (int across = 0; across < side; ++across) put(x + across, y + down, color);
  }
  void text(int x, int y, const std::string& words) {
    for (const char one : words) {
      const Glyph& glyph = glyph_of(one);
      for (int row = 0; row < kGlyphRows; ++row)
        for (int column = 0; column < kGlyphColumns; ++column)
          if ((glyph[static_cast<std::size_t>(row)] >> (kGlyphColumns - 1 - column) & 1) != 0)
            square(x + column * kDot, y + row * kDot, kDot, kInk);
      x += kLetter;
    }
  }
  [[nodiscard]] Status write(const std::string& path) const {
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = kWidth;
    image.height = static_cast<png_uint_32>(height_);
    image.format = PNG_FORMAT_RGB;
    if (png_image_write_to_file(&image, path.c_str(), 0, bytes_.data(), 0, nullptr) != 0) return {};
    return Error{fmt::format("cannot write {}: {}", path, image.message)};
  }

 private:
  int height_;
  std::vector<std::uint8_t> bytes_;
};

int width_of(const std::string& words) {
  return static_cast<int>(words.size()) * kLetter;
}

void draw_panel(Picture& picture, int top, const Series& series, const Color& color, const std::string& over) {
  const Range x = x_range(series);
  const Range y = y_range(series);
  DotCanvas canvas(kWidth - kLeft - kRight, kPanel - kTop - kBottom);
  canvas.draw(series, x, y);
  for (int down = 0; down <= canvas.height(); ++down) picture.put(kLeft - 3, top + kTop + down, kAxis);
  for (int across = -3; across < canvas.width(); ++across)
    picture.put(kLeft + across, top + kTop + canvas.height() + 1, kAxis);
  for (int down = 0; down < canvas.height(); ++down)
    for (int across = 0; across < canvas.width(); ++across)
      if (canvas.at(across, down)) picture.square(kLeft + across, top + kTop + down, 2, color);
  picture.text(kLeft, top + 10, fmt::format("{}: {}", series.name, shown_number(series.points.back().second)));
  const int bottom = top + kTop + canvas.height();
  for (const auto& [value, height] :
       {std::pair(y.greatest, top + kTop), std::pair(y.least, bottom - kGlyphRows * kDot)}) {
    const std::string number = shown_number(value);
    picture.text(kLeft - 10 - width_of(number), height, number);
  }
  const auto [least, greatest] = x_labels(series);
  picture.text(kLeft, bottom + 10, least);
  picture.text(kLeft + (canvas.width() - width_of(over)) / 2, bottom + 10, over);
  picture.text(kWidth - kRight - width_of(greatest), bottom + 10, greatest);
}

}  // namespace

Status write_png(const std::string& path, const std::vector<Series>& series, const std::string& over) {
  if (series.size() > kPngPanelsMax)
    return Error{
        fmt::format("{} curves are too many for one image, at most {}: name some", series.size(), kPngPanelsMax)};
  Picture picture(kPanel * static_cast<int>(series.size()));
  for (std::size_t index = 0; index < series.size(); ++index)
    draw_panel(picture, kPanel * static_cast<int>(index), series[index], kCurves[index % kCurves.size()], over);
  return picture.write(path);
}

}  // namespace sgd::cli
