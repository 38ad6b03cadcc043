#pragma once
// Panels as a PNG image, one below the other, drawn here and encoded by libpng.

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "launcher/cli/panel.hpp"

namespace sgd::cli {

/// Of one image; more would be taller than viewers like.
inline constexpr std::size_t kPngPanelsMax = 64;

/// Replaces `path`. At least one panel.
[[nodiscard]] Status write_png(const std::string& path, const std::vector<Panel>& panels);

}  // namespace sgd::cli
