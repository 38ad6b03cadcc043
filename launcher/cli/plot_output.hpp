#pragma once
// Where verbs that draw put what they have drawn: the terminal that they are in, or an image.

#include <string>
#include <vector>

#include "launcher/cli/panel.hpp"
#include "launcher/cli/terminal_plot.hpp"

namespace sgd::cli {

/// As wide as the terminal, in the letters that it has.
[[nodiscard]] PlotShape terminal_shape();

/// Says where it is; the exit code.
[[nodiscard]] int save_image(const std::vector<Panel>& panels, const std::string& path);

}  // namespace sgd::cli
