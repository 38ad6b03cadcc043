#include "launcher/cli/dot_canvas.hpp"

#include <algorithm>
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
  if (range.greatest > range.least) return range;
  const double margin = range.least == 0 ? 1 : std::abs(range.least) / 2;
  return {range.least - margin, range.greatest + margin};
}

}  // namespace

Range x_range(const Series& series) {
  return range_of(series, [](const auto& point) { return point.first; });
}

Range y_range(const Series& series) {
  return range_of(series, [](const auto& point) { return point.second; });
}

std::pair<std::string, std::string> x_labels(const Series& series) {
  const auto before = [](const auto& one, const auto& other) { return one.first < other.first; };
  const auto [least, greatest] = std::minmax_element(series.points.begin(), series.points.end(), before);
  return {shown_number(least->first), least->first == greatest->first ? "" : shown_number(greatest->first)};
}

std::string shown_number(double value) {
  return fmt::format("{:.4g}", value);
}

void DotCanvas::draw(const Series& series, const Range& x, const Range& y) {
  const auto dot = [this, &x, &y](const std::pair<double, double>& point) {
    const double across = std::clamp(x.part(point.first), 0.0, 1.0) * (width_ - 1);
    const double down = (1 - std::clamp(y.part(point.second), 0.0, 1.0)) * (height_ - 1);
    return std::pair(static_cast<int>(std::lround(across)), static_cast<int>(std::lround(down)));
  };
  std::pair<int, int> before = dot(series.points.front());
  for (const auto& point : series.points) {
    const std::pair<int, int> here = dot(point);
    line(before, here);
    before = here;
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
