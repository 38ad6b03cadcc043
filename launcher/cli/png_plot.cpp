#include "launcher/cli/png_plot.hpp"

#include <fcntl.h>
#include <png.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "launcher/cli/dot_canvas.hpp"
#include "launcher/cli/glyphs.hpp"
#include "launcher/process/own_path.hpp"

namespace sgd::cli {
namespace {

using Color = std::array<std::uint8_t, 3>;

constexpr Color kInk = {40, 40, 40};
constexpr Color kAxis = {170, 170, 170};
constexpr Color kOthers = {176, 184, 196};  ///< Curves beside the one that stands out.
constexpr std::array<Color, 5> kCurves = {
    {{31, 97, 184}, {196, 78, 16}, {20, 122, 84}, {146, 62, 158}, {120, 100, 20}}};

// Pixels of the image and of a panel's parts.
constexpr int kWidth = 960;
constexpr int kPanel = 260;
constexpr int kLeft = 120;
constexpr int kRight = 20;
constexpr int kTop = 34;
constexpr int kBottom = 34;
constexpr int kDot = 2;     ///< Of a letter.
constexpr int kStroke = 2;  ///< Of a curve.
constexpr int kMark = 5;    ///< Of a point that stands alone.
constexpr int kLetter = (kGlyphColumns + 1) * kDot;

bool write_image(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

/// In place of the file of that name, whoever's that is and whatever else it is called; a device or a pipe is written
/// to.
Status save(const std::string& path, std::string_view bytes) {
  using process::OwnPath;
  const auto place = OwnPath::find(path, OwnPath::Folders::kMustBeThere);
  if (!place) return Error{fmt::format("cannot write {}: {}", path, place.error().message), place.error().code};
  const int folder = place.value().folder();
  const std::string& name = place.value().name();
  struct stat there {};
  if (::fstatat(folder, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(there.st_mode)) {
    const process::UniqueFd fd = place.value().open(O_WRONLY);
    return fd && write_image(fd.get(), bytes) ? Status() : Status(system_error("cannot write " + path));
  }
  const std::string temporary = name + ".tmp";
  (void)::unlinkat(folder, temporary.c_str(), 0);  // Ignoring: mostly there is none.
  const process::UniqueFd fd = place.value().open(temporary, O_WRONLY | O_CREAT | O_EXCL);
  if (fd && write_image(fd.get(), bytes) && ::renameat(folder, temporary.c_str(), folder, name.c_str()) == 0) return {};
  Error failed = system_error("cannot write " + path);
  if (fd) (void)::unlinkat(folder, temporary.c_str(), 0);  // Ignoring: the next one takes it away.
  return failed;
}

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
    png_alloc_size_t size = 0;
    std::string file;
    bool is_made = png_image_write_to_memory(&image, nullptr, &size, 0, bytes_.data(), 0, nullptr) != 0;
    if (is_made) {
      file.resize(size);
      is_made = png_image_write_to_memory(&image, file.data(), &size, 0, bytes_.data(), 0, nullptr) != 0;
    }
    if (!is_made) return Error{fmt::format("cannot write {}: {}", path, image.message)};
    return save(path, std::string_view(file).substr(0, size));
  }

 private:
  int height_;
  std::vector<std::uint8_t> bytes_;
};

int width_of(const std::string& words) {
  return static_cast<int>(words.size()) * kLetter;
}

/// The one that stands out, or all others, which have one color: of an experiment there may be thousands.
void draw_curves(Picture& picture, int top, const Panel& panel, bool is_marked, const Color& color) {
  DotCanvas canvas(kWidth - kLeft - kRight, kPanel - kTop - kBottom);
  for (std::size_t index = 0; index < panel.curves.size(); ++index) {
    if ((index == panel.marked) != is_marked) continue;
    const Series& curve = panel.curves[index];
    panel.is_joined ? canvas.draw(curve, panel.x, panel.y) : canvas.mark(curve, panel.x, panel.y, kMark);
  }
  for (int down = 0; down < canvas.height(); ++down)
    for (int across = 0; across < canvas.width(); ++across)
      if (canvas.at(across, down)) picture.square(kLeft + across, top + kTop + down, kStroke, color);
}

void draw_panel(Picture& picture, int top, const Panel& panel, const Color& color) {
  const int right = kWidth - kRight;
  const int bottom = top + kPanel - kBottom;
  for (int y = top + kTop; y <= bottom; ++y) picture.put(kLeft - 3, y, kAxis);
  for (int x = kLeft - 3; x < right; ++x) picture.put(x, bottom + 1, kAxis);
  draw_curves(picture, top, panel, false, panel.marked ? kOthers : color);
  if (panel.marked) draw_curves(picture, top, panel, true, color);
  picture.text(kLeft, top + 10, panel.title);
  for (const auto& [value, height] :
       {std::pair(panel.y.greatest, top + kTop), std::pair(panel.y.least, bottom - kGlyphRows * kDot)}) {
    const std::string number = shown_number(value);
    picture.text(kLeft - 10 - width_of(number), height, number);
  }
  picture.text(kLeft, bottom + 10, panel.left);
  picture.text(kLeft + (right - kLeft - width_of(panel.over)) / 2, bottom + 10, panel.over);
  picture.text(right - width_of(panel.right), bottom + 10, panel.right);
}

}  // namespace

Status write_png(const std::string& path, const std::vector<Panel>& panels) {
  if (panels.size() > kPngPanelsMax)
    return Error{
        fmt::format("{} curves are too many for one image, at most {}: name some", panels.size(), kPngPanelsMax)};
  Picture picture(kPanel * static_cast<int>(panels.size()));
  for (std::size_t index = 0; index < panels.size(); ++index)
    draw_panel(picture, kPanel * static_cast<int>(index), panels[index], kCurves[index % kCurves.size()]);
  return picture.write(path);
}

}  // namespace sgd::cli
