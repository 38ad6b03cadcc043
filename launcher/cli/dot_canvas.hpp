#pragma once
// A field of dots, and straight lines between them: what curves are drawn on, in a terminal and in an image. Pure.

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "launcher/cli/metric_series.hpp"

namespace sgd::cli {

/// The least and the greatest value, a little apart where they are one.
struct Range {
  double least = 0;
  double greatest = 1;

  /// Where `value` stands from 0 to 1.
  [[nodiscard]] double part(double value) const { return (value - least) / (greatest - least); }
};
/// From `least` to `greatest`.
[[nodiscard]] Range range_between(double least, double greatest);
[[nodiscard]] Range x_range(const Series& series);
[[nodiscard]] Range y_range(const Series& series);

/// What stands below the two ends of a curve; of one that stands at one place the second is empty.
[[nodiscard]] std::pair<std::string, std::string> x_labels(const Series& series);

/// "13130", "2.5": a step, an epoch, a report's number or seconds; the first three are whole.
[[nodiscard]] std::string shown_place(double value);
/// "0.0123", "1.5e-07", "1200": as few digits as tell values of `range` apart.
[[nodiscard]] std::string shown_number(double value);

class DotCanvas {
 public:
  DotCanvas(int width, int height)
      : width_(width), height_(height), dots_(static_cast<std::size_t>(width) * static_cast<std::size_t>(height)) {}

  [[nodiscard]] int width() const { return width_; }
  [[nodiscard]] int height() const { return height_; }
  [[nodiscard]] bool at(int x, int y) const { return dots_[place(x, y)]; }
  /// From the top left.
  void set(int x, int y) { dots_[place(x, y)] = true; }
  /// Points joined by lines, within `x` and `y`.
  void draw(const Series& series, const Range& x, const Range& y);
  /// Points alone, each a square of `side` dots.
  void mark(const Series& series, const Range& x, const Range& y, int side);

 private:
  [[nodiscard]] std::pair<int, int> dot_of(const std::pair<double, double>& point, const Range& x,
                                           const Range& y) const;
  [[nodiscard]] std::size_t place(int x, int y) const {
    return static_cast<std::size_t>(y) * static_cast<std::size_t>(width_) + static_cast<std::size_t>(x);
  }
  void line(std::pair<int, int> from, std::pair<int, int> to);

  int width_;
  int height_;
  std::vector<bool> dots_;
};

}  // namespace sgd::cli
