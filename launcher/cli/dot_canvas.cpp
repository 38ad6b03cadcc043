#include "launcher/cli/dot_canvas.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace sgd::cli {
namespace {

template <class Of>
Range range_of(const Series& series, Of of) {
  Range range{of(series.points.front()), of(series.points.front())};
  for (const auto& point : series.points) {
    range.least = std::min(range.least, of(point));
    range.greatest = std::max(range.greatest, of(point));
  }
  return range_between(range.least, range.greatest);
}

}  // namespace

Range range_between(double least, double greatest) {
  if (greatest > least) return {least, greatest};
  const double margin = least == 0 ? 1 : std::abs(least) / 2;
  return {least - margin, greatest + margin};
}

Range x_range(const Series& series) {
  return range_of(series, [](const auto& point) { return point.first; });
}

Range y_range(const Series& series) {
  return range_of(series, [](const auto& point) { return point.second; });
}

std::pair<std::string, std::string> x_labels(const Series& series) {
  const auto before = [](const auto& one, const auto& other) { return one.first < other.first; };
  const auto [least, greatest] = std::minmax_element(series.points.begin(), series.points.end(), before);
  return {shown_place(least->first), least->first == greatest->first ? "" : shown_place(greatest->first)};
}

std::string shown_place(double value) {
  constexpr double kFractionsBelow = 1000;  // Of so many seconds.
  const bool is_whole = std::floor(value) == value || std::abs(value) >= kFractionsBelow;
  return is_whole ? fmt::format("{:.0f}", value) : shown_number(value);
}

std::string shown_number(double value) {
  return fmt::format("{:.4g}", value);
}

std::pair<int, int> DotCanvas::dot_of(const std::pair<double, double>& point, const Range& x, const Range& y) const {
  const double across = std::clamp(x.part(point.first), 0.0, 1.0) * (width_ - 1);
  const double down = (1 - std::clamp(y.part(point.second), 0.0, 1.0)) * (height_ - 1);
  return {static_cast<int>(std::lround(across)), static_cast<int>(std::lround(down))};
}

void DotCanvas::draw(const Series& series, const Range& x, const Range& y) {
  std::pair<int, int> before = dot_of(series.points.front(), x, y);
  for (const auto& point : series.points) {
    const std::pair<int, int> here = dot_of(point, x, y);
    line(before, here);
    before = here;
  }
}

void DotCanvas::mark(const Series& series, const Range& x, const Range& y, int side) {
  for (const auto& point : series.points) {
    const std::pair<int, int> dot = dot_of(point, x, y);
    const int left = std::clamp(dot.first - side / 2, 0, width_ - 1);
    const int top = std::clamp(dot.second - side / 2, 0, height_ - 1);
    for (int down = top; down < std::min(top + side, height_); ++down)
      for (int across = left; across < std::min(left + side, width_); ++across) set(across, down);
  }
}

/// Bresenham's.
void DotCanvas::line(std::pair<int, int> from, std::pair<int, int> to) {
  const int across = std::abs(to.first - from.first);
  const int down = -std::abs(to.second - from.second);
  const int right = from.first < to.first ? 1 : -1;
  const int below = from.second < to.second ? 1 : -1;
  for (int error = across + down;;) {
    set(from.first, from.second);
    if (from == to) return;
    const int twice = 2 * error;
    if (twice >= down) {
      error += down;
      from.first += right;
    }
    if (twice <= across) {
      error += across;
      from.second += below;
    }
  }
}

}  // namespace sgd::cli
