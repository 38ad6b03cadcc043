#pragma once
// What is drawn in one frame, in a terminal or in an image: curves or dots, and the words around them. Pure.

#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/dot_canvas.hpp"

namespace sgd::cli {

struct Panel {
  std::string title;
  std::vector<Series> curves;         ///< Each with a point at least.
  std::optional<std::size_t> marked;  ///< The one of `curves` that stands out.
  bool is_joined = true;              ///< Points are joined by lines; else each is a dot.
  Range x;                            ///< What is outside of them stands at their edge.
  Range y;
  std::string left;   ///< Below the left end,
  std::string over;   ///< the middle,
  std::string right;  ///< and the right end.
};

/// Of one curve. `over`: what it is drawn over.
[[nodiscard]] Panel panel_of(const Series& series, const std::string& over);

}  // namespace sgd::cli
