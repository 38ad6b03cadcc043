// `sgd-launch tune plot [RUN]`: the metric of all trials, in the terminal or as a PNG image.

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/plot_output.hpp"
#include "launcher/cli/png_plot.hpp"
#include "launcher/cli/terminal_text.hpp"
#include "launcher/cli/trial_curves.hpp"
#include "launcher/cli/tune_views.hpp"

namespace sgd::cli {

int tune_plot(const std::vector<std::string>& arguments) {
  std::string png;
  const NamedExperiment named = name_experiment(
      "plot", "[--png FILE] [RUN]", {text_option({"--png"}, "FILE", "an image instead of text", png)}, arguments);
  if (!named.run.is_named) return named.run.exit_code;
  TrialCurves curves;
  const Status read = read_experiment(named, [&curves](const auto& event) { curves.add(event); });
  if (!read) return refuse(exit_code::kNotFound, read.error().message);
  std::vector<Panel> panels = curves.panels();
  if (panels.empty()) return refuse(exit_code::kNotFound, "no trial has reported a number yet");
  if (panels.size() > kPngPanelsMax) panels.resize(kPngPanelsMax);
  if (!png.empty()) return save_image(panels, png);
  const PlotShape shape = terminal_shape();
  for (const Panel& panel : panels) fmt::print("{}\n", for_terminal(panel_text(panel, shape), Steering::kNone));
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
