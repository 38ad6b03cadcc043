// `sgd-launch tune export --to DIR [RUN]`: the trials of an experiment in the form of another tool.

#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/callbacks/csv_file.hpp"
#include "launcher/callbacks/fresh_file.hpp"
#include "launcher/cli/json_lines.hpp"
#include "launcher/cli/metrics_export.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/ray_results.hpp"
#include "launcher/cli/run_fetch.hpp"
#include "launcher/cli/trial_rows.hpp"
#include "launcher/cli/trial_table.hpp"
#include "launcher/cli/tune_views.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

Status write_file(const std::string& path, const std::string& text) {
  auto file = callbacks::FreshFile::create(path);
  if (!file) return file.error();
  if (const Status written = file.value().append(text); !written) return written;
  return file.value().publish();
}

Status write_csv(const std::string& path, const std::vector<Json>& rows) {
  callbacks::CsvFile file(path, nlohmann::json::object());
  // A row with a new column asks for all rows again.
  for (std::size_t next = 0; next < rows.size();) {
    if (next == 0)
      if (const auto begun = file.begin(); !begun) return begun.error();
    const auto taken = file.add(rows[next]);
    if (!taken) return taken.error();
    next = taken.value() == callbacks::Taken::kAgain ? 0 : next + 1;
  }
  return file.flush();
}

/// Of one trial, as Ray Tune leaves it in its experiment's folder.
Status write_ray_trial(const std::string& source, const std::string& folder, const RayTrial& trial) {
  std::vector<Json> lines;  // None: it has reported nothing.
  (void)each_object(source + "/metrics.jsonl", [&lines](Json line) { lines.push_back(std::move(line)); });
  const std::vector<Json> results = ray_results(trial, lines);
  std::string text;
  for (const Json& result : results) text += dump_text(result) + "\n";
  if (const Status written = write_file(folder + "/params.json", dump_text(trial.parameters, 2) + "\n"); !written)
    return written;
  if (const Status written = write_file(folder + "/result.json", text); !written) return written;
  return results.empty() ? Status{} : write_csv(folder + "/progress.csv", results);
}

/// What a trial of one on a cluster has reported, and its job where that is `wanted`, to where it lies here.
Status fetch_trial(const NamedExperiment& named, std::int64_t number, bool wants_job, const std::string& folder) {
  if (!named.run.cluster) return {};
  NamedRun trial = named.run;
  trial.run = trial_run_name(named.run.run, number);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Error{fmt::format("cannot make {}: {}", folder, error.message())};
  const auto fetched = fetch_files(trial, {{"metrics", true}}, folder);
  // One whose values make no job has never been a run.
  if (!fetched && fetched.error().code == exit_code::kNotFound) return {};
  if (!fetched) return fetched.error();
  if (!wants_job) return {};
  const auto answer = ask_for(trial, {{"request", "job"}});
  if (!answer) return answer.error();
  return write_file(folder + "/job.json", dump_text(member(answer.value(), "job")) + "\n");
}

Status export_trials(const TrialTable& table, const NamedExperiment& named, const std::string& layout,
                     const std::string& folder) {
  if (layout == "csv") return write_csv(folder + "/trials.csv", trial_rows(table));
  for (const auto& [number, trial] : table.trials()) {
    const std::string from = fmt::format("{}/trials/{:04}", named.folder, number);
    const std::string to = folder + "/" + ray_name(number);
    Status written = fetch_trial(named, number, layout == "tensorboard", from);
    if (!written) return written;
    if (layout == "ray") {
      written = write_ray_trial(from, to, {number, trial.parameters, is_over(trial.state)});
    } else {
      const std::optional<bool> ended = is_over(trial.state) ? std::optional(trial.state != "failed") : std::nullopt;
      const auto place = write_reports({{"type", "tensorboard"}, {"folder", to}}, fmt::format("{:04}", number), from,
                                       job_in(from), ended);
      if (!place) written = place.error();
    }
    if (!written) return written;
  }
  return {};
}

Option layout_option(std::string& layout) {
  return {
      {"--layout"},
      "WHAT",
      "ray: result.json, progress.csv and params.json for each trial; tensorboard: an event file for each; csv: one "
      "table; default: ray",
      "",
      [&layout](const std::string& value) {
        layout = value;
        const bool is_known = value == "ray" || value == "tensorboard" || value == "csv";
        return is_known ? std::string() : fmt::format("expected ray, tensorboard or csv, got \"{}\"", value);
      }};
}

}  // namespace

int tune_export(const std::vector<std::string>& arguments) {
  std::string layout = "ray";
  std::string to;
  const NamedExperiment named =
      name_experiment("export", "[--layout WHAT] --to DIR [RUN]",
                      {layout_option(layout), text_option({"--to"}, "DIR", "the folder for it", to)}, arguments);
  if (!named.run.is_named) return named.run.exit_code;
  if (to.empty()) return refuse(exit_code::kUsage, "tune export needs --to DIR: the folder for what is made");
  TrialTable table;
  const Status read = read_experiment(named, [&table](const Json& event) { table.add(event); });
  if (!read) return refuse(exit_code::kNotFound, read.error().message);
  if (table.trials().empty()) return refuse(exit_code::kNotFound, "no trial has started yet");
  const std::string folder = absolute(to);
  if (const Status written = export_trials(table, named, layout, folder); !written)
    return refuse(exit_code::kFailed, written.error().message);
  fmt::print("{}\n", layout == "csv" ? folder + "/trials.csv" : folder);
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
