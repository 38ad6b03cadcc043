#pragma once
// Curves as a PNG image: a panel each, one below the other, drawn here and encoded by libpng.

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "launcher/cli/metric_series.hpp"

namespace sgd::cli {

/// Of one image; more would be taller than viewers like.
inline constexpr std::size_t kPngPanelsMax = 64;

/// `series`: with a point at least each. `over`: what stands below. Replaces `path`.
[[nodiscard]] Status write_png(const std::string& path, const std::vector<Series>& series, const std::string& over);

}  // namespace sgd::cli
