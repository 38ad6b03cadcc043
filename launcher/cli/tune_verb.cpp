// `sgd-launch tune job.json`: many trials of one job, here or on a cluster.

#include <algorithm>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/experiment_checks.hpp"
#include "launcher/cli/help_text.hpp"
#include "launcher/cli/local_experiment.hpp"
#include "launcher/cli/local_node.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/run_place.hpp"
#include "launcher/cli/tune_resume.hpp"
#include "launcher/cli/tune_views.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/core/secrets.hpp"
#include "launcher/process/random_seed.hpp"

namespace sgd::cli {
namespace {

Option override_of(RunOptions& options, const char* name, const char* help, const char* path) {
  return {{name}, "N", help, "", [&options, name, path](const std::string& text) {
            options.overrides.sets.push_back({path, text, name});
            return std::string();
          }};
}

std::vector<Option> tune_option_table(RunOptions& options, std::string& resumed) {
  std::vector<Option> table = resume_option_table(options);
  // Nobody sees what ranks write, and one node is enough for trials.
  std::erase_if(table, [](const Option& option) {
    const std::string& name = option.names.front();
    return name == "--no-prefix" || name == "--no-fold" || name == "--timestamps" || name == "--output" ||
           name == "--local-nodes";
  });
  table.push_back(
      override_of(options, "--samples", "number of trials; with a grid, of each of its points", "tune.samples"));
  table.push_back(
      override_of(options, "--concurrent", "number of trials that run at the same time", "tune.concurrent"));
  table.push_back(run_dir_option(options));
  table.push_back({{"--resume"},
                   "RUN",
                   "continue an experiment, or add trials with --samples N; join one on a cluster that has not ended",
                   "",
                   [&resumed](const std::string& text) {
                     resumed = text;
                     return text.empty() ? std::string("expected the experiment's folder") : std::string();
                   }});
  table.push_back(address_option(options.address));
  table.push_back(flag({"--detach"}, "on a cluster: print the experiment's id and return; the experiment continues",
                       options.detach));
  table.push_back(flag({"--help", "-h"}, "this text", options.help));
  return table;
}

std::string tune_help() {
  RunOptions unused;
  std::string none;
  return "Example: sgd-launch tune configs/tune_linear.json --samples 20\n"
         "Usage: sgd-launch tune [options] job.json        trials of the job, whose \"tune\" says what is tried\n"
         "       sgd-launch tune --address HOST:PORT job.json  the same on a cluster\n"
         "       sgd-launch tune --resume RUN              continues it, or adds trials with --samples N\n"
         "       sgd-launch tune status [--json] [RUN]     the table of its trials\n"
         "       sgd-launch tune best [--json | --job] [RUN]   the best of them, and how to run it again\n"
         "       sgd-launch tune plot [--png FILE] [RUN]   its metric as curves, and over each parameter\n"
         "       sgd-launch tune export --to DIR [RUN]     its trials in the format of another tool\n" +
         describe(tune_option_table(unused, none));
}

int tune_on_cluster(const RunOptions& options, const net::Address& coordinator,
                    const std::optional<CheckedExperiment>& checked, Diagnostics diagnostics) {
  refuse_local_options(options, diagnostics);
  refuse_run_dir(options, diagnostics);
  const bool is_searched = checked && checked->spec.search.kind == tune::SearchSpec::Kind::kExec;
  if (is_searched && options.detach)
    diagnostics.error("--detach", 0, 0,
                      "the job's search program runs beside this command, which has to stay: leave it out");
  print(diagnostics);
  if (diagnostics.has_errors() || !checked) return exit_code::kUsage;
  auto tls = user_tls(coordinator);
  if (!tls) return refuse(exit_code::kUsage, tls.error().message);
  const core::TrialBase& base = *checked->run.base;
  RemoteRun run(options, coordinator, std::move(tls).value());
  if (is_searched) run.search_with(checked->spec, core::Secrets(process::random_seed()).next());
  return run.submit({{"job", *checked->run.job.resolved}, {"base", {{"given", base.given}, {"folder", base.folder}}}},
                    options.detach);
}

int start_experiment(const std::vector<std::string>& arguments) {
  Diagnostics diagnostics;
  RunOptions options;
  std::string resumed;
  const ParsedArguments parsed =
      parse_arguments(tune_option_table(options, resumed), arguments, AfterPositional::kContinue, diagnostics, "tune");
  if (options.help) {
    print_help("tune", tune_help());
    return exit_code::kSucceeded;
  }
  count_workers(options, false, diagnostics);
  if (parsed.has_dashes)
    diagnostics.error("--", 0, 0, "an experiment needs a job file: it has the \"command\", and a \"tune\"");
  const auto coordinator = cluster_address(options.address, diagnostics);
  if (!resumed.empty() && parsed.positional.empty())
    return resume_experiment(options, resumed, coordinator, std::move(diagnostics));
  if (!resumed.empty())
    diagnostics.error("--resume", 0, 0, "goes on with an experiment that has its job already: name no job file");
  if (parsed.positional.empty()) diagnostics.error("tune", 0, 0, "name a job file; see sgd-launch tune --help");
  if (!parsed.positional.empty()) options.job_file = parsed.positional.front();
  for (std::size_t index = 1; index < parsed.positional.size(); ++index)
    diagnostics.error("tune", 0, 0,
                      fmt::format("one job file at a time: \"{}\" is too many", parsed.positional[index]));
  std::optional<CheckedExperiment> checked;
  const auto where = coordinator ? ExperimentPlace::kCluster : ExperimentPlace::kHere;
  if (!options.job_file.empty()) checked = check_experiment(options, where, diagnostics);
  if (coordinator) return tune_on_cluster(options, *coordinator, checked, std::move(diagnostics));
  if (options.detach)
    diagnostics.error("--detach", 0, 0, "needs a coordinator: an experiment on this machine ends with its launcher");
  const auto place = place_of_new_run(checked ? checked->run.job.name : "tune", options.run_dir, diagnostics);
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  checked->run.id = place.value().id;
  checked->run.run_dir = place.value().directory;
  return LocalExperiment(options, std::move(checked->run)).run();
}

}  // namespace

int tune_verb(const std::vector<std::string>& arguments) {
  const std::string first = arguments.empty() ? "" : arguments.front();
  const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (first == "status") return tune_status(rest);
  if (first == "best") return tune_best(rest);
  if (first == "plot") return tune_plot(rest);
  if (first == "export") return tune_export(rest);
  return start_experiment(arguments);
}

}  // namespace sgd::cli
