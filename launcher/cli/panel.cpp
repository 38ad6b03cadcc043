#include "launcher/cli/panel.hpp"

#include <tuple>

#include <fmt/format.h>

namespace sgd::cli {

Panel panel_of(const Series& series, const std::string& over) {
  Panel panel;
  panel.title = fmt::format("{}: {}", series.name, shown_number(series.points.back().second));
  panel.curves = {series};
  panel.marked = 0;
  panel.x = x_range(series);
  panel.y = y_range(series);
  panel.over = over;
  std::tie(panel.left, panel.right) = x_labels(series);
  return panel;
}

}  // namespace sgd::cli
