// `sgd-launch plot [RUN] [METRIC...]`: the run's metrics as curves, in the terminal or as a PNG image.

#include <optional>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/json_lines.hpp"
#include "launcher/cli/metric_series.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/plot_output.hpp"
#include "launcher/cli/run_fetch.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/scratch_folder.hpp"
#include "launcher/cli/terminal_text.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {
namespace {

struct PlotOptions {
  std::vector<std::string> metrics;
  std::string png;
  std::string over = "step";
};

/// "--over": one of a few words.
std::string refusal_of_over(const std::string& over) {
  std::string known;
  for (const char* one : MetricSeries::kOver) {
    if (over == one) return "";
    known += (known.empty() ? "" : ", ") + std::string(one);
  }
  return fmt::format("expected one of {}, got \"{}\"", known, over);
}

}  // namespace

int plot_verb(const std::vector<std::string>& arguments) {
  PlotOptions options;
  const Option over = {{"--over"},
                       "WHAT",
                       "step, epoch, iteration (the report's number) or time (in s); default: step",
                       "",
                       [&options](const std::string& value) {
                         options.over = value;
                         return refusal_of_over(value);
                       }};
  const NamedRun run = name_run({"plot",
                                 "[options] [RUN [METRIC...]]",
                                 "sgd-launch plot latest train_loss val_loss",
                                 {over, text_option({"--png"}, "FILE", "an image instead of text", options.png)},
                                 [&options](std::vector<std::string>& words, Diagnostics&) {
                                   if (words.size() < 2) return;
                                   options.metrics.assign(words.begin() + 1, words.end());
                                   words.resize(1);
                                 }},
                                arguments);
  if (!run.is_named) return run.exit_code;
  std::optional<ScratchFolder> here;
  if (run.cluster) {
    here.emplace("sgd-metrics");
    if (here->path().empty()) return refuse(exit_code::kFailed, system_error("cannot make a folder in /tmp").message);
    const auto fetched = fetch_files(run, {{"metrics", true}}, here->path());
    if (!fetched) return refuse(fetched.error().code, fetched.error().message);
  }
  MetricSeries metrics(options.over);
  const std::string folder = here ? here->path() : run.directory;
  const std::string path = folder + "/metrics.jsonl";
  if (!each_object(path, [&metrics](const auto& report) { metrics.add(report); }))
    return refuse(exit_code::kNotFound,
                  here ? "the run has reported nothing yet" : path + " is not there: the run has reported nothing yet");
  if (metrics.names().empty()) return refuse(exit_code::kNotFound, "the run has reported no number yet");
  const auto series = metrics.select(options.metrics);
  if (!series) return refuse(exit_code::kUsage, series.error().message);
  if (series.value().empty())
    return refuse(exit_code::kUsage, fmt::format("name a metric: {}", fmt::join(metrics.names(), ", ")));
  if (!options.png.empty()) {
    std::vector<Panel> panels;
    for (const Series& one : series.value()) panels.push_back(panel_of(one, options.over));
    return save_image(panels, options.png);
  }
  PlotShape shape = terminal_shape();
  shape.over = options.over;
  for (const Series& one : series.value()) fmt::print("{}\n", for_terminal(plot_text(one, shape), Steering::kNone));
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
