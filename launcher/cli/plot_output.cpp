#include "launcher/cli/plot_output.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/command_line.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/png_plot.hpp"
#include "launcher/cli/run_naming.hpp"

namespace sgd::cli {
namespace {

int plot_columns() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  return whole_number(columns == nullptr ? "" : columns).value_or(80);
}

}  // namespace

PlotShape terminal_shape() {
  PlotShape shape;
  shape.columns = plot_columns();
  shape.is_utf8 = speaks_utf8(std::getenv("LC_ALL"), std::getenv("LC_CTYPE"), std::getenv("LANG"));
  return shape;
}

int save_image(const std::vector<Panel>& panels, const std::string& path) {
  const std::string whole = absolute(path);
  if (const Status written = write_png(whole, panels); !written)
    return refuse(exit_code::kFailed, written.error().message);
  fmt::print("{}\n", whole);
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
