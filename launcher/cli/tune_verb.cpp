// `sgd-launch tune job.json`: many trials of one job, here. `sgd-launch tune status|best [RUN]`: what is known of them.

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/control_client.hpp"
#include "launcher/cli/experiment_checks.hpp"
#include "launcher/cli/local_experiment.hpp"
#include "launcher/cli/local_node.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/run_place.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

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
  table.push_back(override_of(options, "--samples", "how many trials, of each point of a grid", "tune.samples"));
  table.push_back(override_of(options, "--concurrent", "trials at the same time", "tune.concurrent"));
  table.push_back(run_dir_option(options));
  table.push_back({{"--resume"},
                   "RUN",
                   "go on with an experiment of this machine, or with --samples N have more trials",
                   "",
                   [&resumed](const std::string& text) {
                     resumed = text;
                     return text.empty() ? std::string("expected the experiment's folder") : std::string();
                   }});
  table.push_back(address_option(options.address));
  table.push_back(flag({"--detach"}, "on a cluster: print the experiment's id and leave it to itself", options.detach));
  table.push_back(flag({"--help", "-h"}, "this text", options.help));
  return table;
}

std::string tune_help() {
  RunOptions unused;
  std::string none;
  return "Example: sgd-launch tune configs/tune_linear.json --samples 20\n"
         "Usage: sgd-launch tune [options] job.json        trials of the job, whose \"tune\" says what is tried\n"
         "       sgd-launch tune --address HOST:PORT job.json  the same on a cluster\n"
         "       sgd-launch tune --resume RUN              goes on with it, or with --samples N has more trials\n"
         "       sgd-launch tune status [--json] [RUN]     the table of its trials\n"
         "       sgd-launch tune best [--json] [RUN]       the best of them, and how it is run again\n" +
         describe(tune_option_table(unused, none));
}

/// Everything but its samples is what it was: else its trials would not be those of one experiment.
int resume_experiment(const RunOptions& options, const std::string& folder, Diagnostics& diagnostics) {
  std::int64_t samples = 0;
  for (const job::Overrides::Set& set : options.overrides.sets) {
    const auto number = whole_number(set.value);
    if (set.path != "tune.samples")
      diagnostics.error(set.source, 0, 0,
                        "changes the job, which is fixed: of an experiment that goes on only --samples may change");
    else if (!number || *number < 1)
      diagnostics.error(set.source, 0, 0, fmt::format("expected a whole number from 1, got \"{}\"", set.value));
    else
      samples = *number;
  }
  const auto found = find_run(folder);
  if (!found) diagnostics.error("--resume", 0, 0, found.error().message);
  if (!options.run_dir.empty())
    diagnostics.error("--run-dir", 0, 0, "is of a new experiment: --resume names the folder");
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  core::RunDefinition experiment;
  experiment.run_dir = found.value();
  return LocalExperiment(options, std::move(experiment)).resume(samples);
}

int tune_on_cluster(const RunOptions& options, const net::Address& coordinator,
                    const std::optional<CheckedExperiment>& checked, Diagnostics diagnostics) {
  refuse_local_options(options, diagnostics);
  print(diagnostics);
  if (diagnostics.has_errors() || !checked) return exit_code::kUsage;
  auto tls = user_tls(coordinator);
  if (!tls) return refuse(exit_code::kUsage, tls.error().message);
  const core::TrialBase& base = *checked->run.base;
  return RemoteRun(options, coordinator, std::move(tls).value())
      .submit({{"job", checked->run.job.resolved}, {"base", {{"given", base.given}, {"folder", base.folder}}}},
              options.detach);
}

int start_experiment(const std::vector<std::string>& arguments) {
  Diagnostics diagnostics;
  RunOptions options;
  std::string resumed;
  const ParsedArguments parsed =
      parse_arguments(tune_option_table(options, resumed), arguments, AfterPositional::kContinue, diagnostics);
  if (options.help) {
    fmt::print("{}", tune_help());
    return exit_code::kSucceeded;
  }
  if (parsed.has_dashes)
    diagnostics.error("--", 0, 0, "an experiment needs a job file: it has the \"command\", and a \"tune\"");
  if (!resumed.empty() && parsed.positional.empty()) return resume_experiment(options, resumed, diagnostics);
  if (!resumed.empty())
    diagnostics.error("--resume", 0, 0, "goes on with an experiment that has its job already: name no job file");
  if (parsed.positional.empty()) diagnostics.error("tune", 0, 0, "name a job file; see sgd-launch tune --help");
  if (!parsed.positional.empty()) options.job_file = parsed.positional.front();
  for (std::size_t index = 1; index < parsed.positional.size(); ++index)
    diagnostics.error("tune", 0, 0,
                      fmt::format("one job file at a time: \"{}\" is too many", parsed.positional[index]));
  std::optional<CheckedExperiment> checked;
  const auto coordinator = cluster_address(options.address, diagnostics);
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

/// Of the experiment's own events: they are there while it runs, and when it has ended.
Result<TrialTable> table_of(const std::string& run_dir) {
  std::ifstream file(run_dir + "/events.jsonl");
  if (!file) return system_error("cannot open " + run_dir + "/events.jsonl");
  TrialTable table;
  for (std::string line; std::getline(file, line);) {
    const Json event = Json::parse(line, nullptr, false);
    if (event.is_object()) table.add(event);
  }
  if (table.metric().empty()) return Error{run_dir + " is no experiment: sgd-launch status shows a run"};
  return table;
}

NamedRun name_experiment(const char* verb, const std::vector<std::string>& arguments, bool& as_json) {
  NamedRun run = name_run({std::string("tune ") + verb,
                           "[--json] [RUN]",
                           std::string("sgd-launch tune ") + verb,
                           {flag({"--json"}, "one JSON object", as_json)},
                           {}},
                          arguments);
  if (!run.is_named || !run.cluster) return run;
  run.is_named = false;
  run.exit_code = refuse(exit_code::kUsage, fmt::format("tune {} reads a folder of this machine; of an experiment on a "
                                                        "cluster: sgd-launch status RUN, sgd-launch events RUN",
                                                        verb));
  return run;
}

/// "running", how it ended, or "lost": its launcher was killed.
std::string state_of(const std::string& run_dir) {
  const auto answer = ask_run(run_dir, {{"request", "status"}});
  if (!answer || answer.value()) return "running";
  std::ifstream file(run_dir + "/summary.json");
  return read_or(file ? Json::parse(file, nullptr, false) : Json(), "state", "lost");
}

int show_status(const std::vector<std::string>& arguments) {
  bool as_json = false;
  const NamedRun run = name_experiment("status", arguments, as_json);
  if (!run.is_named) return run.exit_code;
  const auto table = table_of(run.directory);
  if (!table) return refuse(exit_code::kNotFound, table.error().message);
  const std::string state = state_of(run.directory);
  if (as_json) {
    Json json = table.value().to_json();
    json["state"] = state;
    fmt::print("{}\n", dump_text(json, 2));
    return exit_code::kSucceeded;
  }
  for (const std::string& line : table.value().lines(table.value().trials().size())) fmt::print("{}\n", line);
  fmt::print("{}\n", table.value().progress());
  if (state == "lost")
    fmt::print("its launcher was killed, and its trials with it; to go on: sgd-launch tune --resume {}\n",
               as_typed(run.directory));
  return exit_code::kSucceeded;
}

int show_best(const std::vector<std::string>& arguments) {
  bool as_json = false;
  const NamedRun run = name_experiment("best", arguments, as_json);
  if (!run.is_named) return run.exit_code;
  std::ifstream file(run.directory + "/best.json");
  const Json best = file ? Json::parse(file, nullptr, false) : Json();
  if (!best.is_object())
    return refuse(exit_code::kNotFound, fmt::format("no trial of {} has ended with a value yet", run.directory));
  if (as_json) {
    fmt::print("{}\n", dump_text(best, 2));
    return exit_code::kSucceeded;
  }
  fmt::print("trial      {}\n{:<10} {} at {}\n", read_or(best, "trial", 0), read_or(best, "metric", ""),
             read_or(best, "value", 0.0), read_or(best, "iteration", 0));
  for (const auto& [name, value] : member(best, "parameters").items()) fmt::print("{} = {}\n", name, dump_text(value));
  const std::string checkpoint = read_or(best, "checkpoint", "");
  if (!checkpoint.empty()) fmt::print("checkpoint {}\n", checkpoint);
  fmt::print("again      sgd-launch {}/job.json\n", read_or(best, "folder", ""));
  return exit_code::kSucceeded;
}

}  // namespace

int tune_verb(const std::vector<std::string>& arguments) {
  const std::string first = arguments.empty() ? "" : arguments.front();
  const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (first == "status") return show_status(rest);
  if (first == "best") return show_best(rest);
  return start_experiment(arguments);
}

}  // namespace sgd::cli
