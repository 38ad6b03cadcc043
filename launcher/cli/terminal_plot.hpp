#pragma once
// Curves as text: in dots of Braille letters where the terminal speaks UTF-8, else in plain ASCII. Pure.

#include <string>

#include "launcher/cli/panel.hpp"

namespace sgd::cli {

struct PlotShape {
  int columns = 80;  ///< Of the terminal; less than kColumnsMin is as much as that.
  int rows = 10;     ///< Of the curve.
  bool is_utf8 = false;
  std::string over = "step";  ///< What stands below.

  static constexpr int kColumnsMin = 30;
};

/// A panel with its words; `shape.over` is not asked.
[[nodiscard]] std::string panel_text(const Panel& panel, const PlotShape& shape);

/// A curve with its name, its ends and its last value. `series` has a point at least.
[[nodiscard]] std::string plot_text(const Series& series, const PlotShape& shape);

/// Whether these values of LC_ALL, LC_CTYPE and LANG (null: not set) mean UTF-8.
[[nodiscard]] bool speaks_utf8(const char* lc_all, const char* lc_ctype, const char* lang);

}  // namespace sgd::cli
