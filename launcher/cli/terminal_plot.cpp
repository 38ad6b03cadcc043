#include "launcher/cli/terminal_plot.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "launcher/cli/dot_canvas.hpp"

namespace sgd::cli {
namespace {

/// Numbers beside the curve.
constexpr int kLabelColumns = 10;

/// Dots of one letter.
struct LetterDots {
  int across = 1;
  int down = 1;
};

/// The letter at (column, row) of `canvas`.
std::string letter_at(const DotCanvas& canvas, int column, int row, bool is_utf8) {
  if (!is_utf8) return canvas.at(column, row) ? "*" : " ";
  // Unicode 2800: a bit for each dot, left column first, the lowest row added later.
  static constexpr int kBits[4][2] = {{0, 3}, {1, 4}, {2, 5}, {6, 7}};
  unsigned int dots = 0;
  for (int y = 0; y < 4; ++y)
    for (int x = 0; x < 2; ++x)
      if (canvas.at(column * 2 + x, row * 4 + y)) dots |= 1U << kBits[y][x];
  if (dots == 0) return " ";
  const unsigned int code = 0x2800 + dots;
  return {static_cast<char>(0xe0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3f)),
          static_cast<char>(0x80 | (code & 0x3f))};
}

std::string label_of(int row, int rows, const Range& y) {
  if (row == 0) return shown_number(y.greatest);
  if (row == rows - 1) return shown_number(y.least);
  return row == rows / 2 ? shown_number((y.greatest + y.least) / 2) : "";
}

void trim_right(std::string& line) {
  line.erase(line.find_last_not_of(' ') + 1);
}

}  // namespace

std::string panel_text(const Panel& panel, const PlotShape& shape) {
  const int columns = std::max(shape.columns, PlotShape::kColumnsMin) - kLabelColumns - 2;
  const LetterDots dots = shape.is_utf8 ? LetterDots{2, 4} : LetterDots{};
  DotCanvas canvas(columns * dots.across, shape.rows * dots.down);
  for (const Series& curve : panel.curves)
    panel.is_joined ? canvas.draw(curve, panel.x, panel.y) : canvas.mark(curve, panel.x, panel.y, dots.across);
  std::string text = panel.title + "\n";
  for (int row = 0; row < shape.rows; ++row) {
    std::string line =
        fmt::format("{:>{}} {}", label_of(row, shape.rows, panel.y), kLabelColumns, shape.is_utf8 ? "│" : "|");
    for (int column = 0; column < columns; ++column) line += letter_at(canvas, column, row, shape.is_utf8);
    trim_right(line);
    text += line + "\n";
  }
  text += std::string(kLabelColumns + 1, ' ') + (shape.is_utf8 ? "└" : "+");
  for (int column = 0; column < columns; ++column) text += shape.is_utf8 ? "─" : "-";
  const int middle = std::max(columns - static_cast<int>(panel.left.size() + panel.right.size()), 0);
  std::string below =
      fmt::format("{}{}{:^{}}{}", std::string(kLabelColumns + 2, ' '), panel.left, panel.over, middle, panel.right);
  return text + "\n" + below + "\n";
}

std::string plot_text(const Series& series, const PlotShape& shape) {
  Panel panel = panel_of(series, shape.over);
  const std::size_t reports = series.points.size() + series.left_out;
  panel.title += fmt::format(" after {} report{}", reports, reports == 1 ? "" : "s");
  return panel_text(panel, shape);
}

bool speaks_utf8(const char* lc_all, const char* lc_ctype, const char* lang) {
  for (const char* value : {lc_all, lc_ctype, lang}) {
    if (value == nullptr || *value == '\0') continue;
    std::string name = value;
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    return name.find("utf-8") != std::string::npos || name.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace sgd::cli
