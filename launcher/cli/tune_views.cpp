#include "launcher/cli/tune_views.hpp"

#include <string_view>

#include <fmt/format.h>

#include "common/checkpoint/manifest.hpp"
#include "common/exit_codes.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/json_lines.hpp"
#include "launcher/cli/local_node.hpp"
#include "launcher/cli/run_fetch.hpp"
#include "launcher/cli/run_place.hpp"
#include "launcher/cli/trial_table.hpp"
#include "launcher/core/snapshot.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kTrialsAsked = 64;  // Each is a connection of its own.

/// As people know it.
std::string name_of(const NamedRun& run) {
  return run.cluster ? run.run : run.directory;
}

Result<TrialTable> table_of(const NamedExperiment& named) {
  TrialTable table;
  const Status read = read_experiment(named, [&table](const Json& event) { table.add(event); });
  if (!read) return read.error();
  return table;
}

/// "running", how it ended, or "lost": its launcher was killed.
std::string state_of(const NamedRun& run) {
  const auto answer = ask(run, {{"request", "status"}});
  if (run.cluster) {
    if (!answer || !answer.value()->contains("summary")) return "running";
    return read_or(member(*answer.value(), "summary"), "state", "");
  }
  if (!answer || answer.value()) return "running";
  return read_or(json::read_ordered_file(run.directory + "/summary.json"), "state", "lost");
}

/// What best.json says. The error's code is the exit code.
Result<Json> best_of(const NamedRun& run) {
  if (run.cluster) {
    const auto answer = ask_for(run, {{"request", "best"}});
    if (!answer) return answer.error();
    return member(answer.value(), "best");
  }
  Json best = json::read_ordered_file(run.directory + "/best.json");
  if (best.is_object()) return best;
  return Error{fmt::format("no trial of {} has ended with a value yet", run.directory), exit_code::kNotFound};
}

/// The run of a trial.
NamedRun trial_run(const NamedRun& experiment, std::int64_t trial) {
  NamedRun run = experiment;
  if (run.cluster)
    run.run = trial_run_name(experiment.run, trial);
  else
    run.directory += fmt::format("/trials/{:04}", trial);
  return run;
}

/// Runs of trials are asked until one has no place.
void note_places(const NamedRun& experiment, TrialTable& table) {
  for (int asked = 0; asked < kTrialsAsked; ++asked) {
    const auto trial = table.first_unplaced();
    if (!trial) return;
    const auto answer = ask(trial_run(experiment, *trial), {{"request", "status"}});
    if (!answer || !answer.value() || !answer.value()->contains("status")) return;
    const core::RunSnapshot shot = core::snapshot_from_json(member(*answer.value(), "status"));
    const bool waits = shot.phase == core::RunPhase::kPlacing;
    table.note_place(*trial, waits);
    if (waits) return;
  }
}

/// Not into best.json, which would be empty when it is read, were somebody in the experiment's folder.
std::string again_by_job(const std::string& experiment) {
  return fmt::format("sgd-launch tune best --job {} > best_job.json && sgd-launch best_job.json", experiment);
}

/// What somebody would type to have the trial and its checkpoint once more.
void print_how(const NamedRun& experiment, const Json& best) {
  const std::string checkpoint = read_or(best, "checkpoint", "");
  if (experiment.cluster) {
    const auto saved = checkpoint::parse_directory_name(std::string_view(checkpoint).substr(checkpoint.rfind('/') + 1));
    if (saved)
      fmt::print("checkpoint sgd-launch checkpoints get --step {} {} DIR\n", saved->step,
                 trial_run_name(experiment.run, read_or(best, "trial", std::int64_t{0})));
    fmt::print("again      {}\n", again_by_job(experiment.run));
    return;
  }
  if (!checkpoint.empty()) fmt::print("checkpoint {}\n", checkpoint);
  fmt::print("again      {}\n", best_again(best, read_or(best, "folder", ""), experiment.directory));
}

}  // namespace

std::string trial_run_name(const std::string& experiment, std::int64_t trial) {
  return fmt::format("{}.{:04}", experiment, trial);
}

std::string best_again(const Json& best, const std::string& shown_folder, const std::string& experiment) {
  const Json job = json::read_ordered_file(read_or(best, "folder", "") + "/job.json");
  const bool is_same = job.is_object() && nlohmann::json(job) == nlohmann::json(member(best, "job"));
  return is_same ? fmt::format("sgd-launch {}/job.json", shown_folder) : again_by_job(experiment);
}

NamedExperiment name_experiment(const char* verb, const std::string& usage, std::vector<Option> options,
                                const std::vector<std::string>& arguments) {
  const std::string name = std::string("tune ") + verb;
  NamedExperiment named;
  named.run = name_run({name, usage, "sgd-launch " + name, std::move(options), {}}, arguments);
  named.folder = named.run.directory;
  if (!named.run.is_named || !named.run.cluster) return named;
  named.run.is_named = false;
  const auto status = ask_for(named.run, {{"request", "status"}});
  if (!status) {
    named.run.exit_code = refuse(status.error().code, status.error().message);
    return named;
  }
  // A trial's is that of its number, and has no trials: its name stays.
  const std::string folder =
      read_or(status.value(), "run_dir", read_or(member(status.value(), "status"), "run_dir", ""));
  if (named.run.run.empty() || !folder.ends_with("/" + named.run.run.substr(named.run.run.rfind('.') + 1)))
    named.run.run = folder.substr(folder.rfind('/') + 1);
  named.here = std::make_unique<ScratchFolder>("sgd-events");
  named.folder = named.here->path();
  if (named.folder.empty()) {
    named.run.exit_code = refuse(exit_code::kFailed, system_error("cannot make a folder in /tmp").message);
    return named;
  }
  const auto fetched = fetch_files(named.run, {{"events", true}}, named.folder);
  named.run.is_named = fetched.ok();
  if (!fetched) named.run.exit_code = refuse(fetched.error().code, fetched.error().message);
  return named;
}

Status read_experiment(const NamedExperiment& named, const std::function<void(const Json& event)>& take) {
  bool is_experiment = false;
  const bool is_there = each_object(named.folder + "/events.jsonl", [&](const Json& event) {
    is_experiment = is_experiment || read_or(event, "event", "") == "experiment_started";
    take(event);
  });
  if (!is_there) return system_error("cannot open " + named.folder + "/events.jsonl");
  if (is_experiment) return {};
  return Error{name_of(named.run) + " is not an experiment: sgd-launch status shows a run"};
}

int tune_status(const std::vector<std::string>& arguments) {
  bool as_json = false;
  const NamedExperiment named =
      name_experiment("status", "[--json] [RUN]", {flag({"--json"}, "one JSON object", as_json)}, arguments);
  if (!named.run.is_named) return named.run.exit_code;
  auto table = table_of(named);
  if (!table) return refuse(exit_code::kNotFound, table.error().message);
  const std::string state = state_of(named.run);
  if (state == "running") note_places(named.run, table.value());
  if (as_json) {
    Json json = table.value().to_json();
    json["state"] = state;
    fmt::print("{}\n", dump_text(json, 2));
    return exit_code::kSucceeded;
  }
  for (const std::string& line : table.value().lines(table.value().trials().size())) fmt::print("{}\n", line);
  fmt::print("{}\n", table.value().progress());
  if (state == "running" && named.run.cluster && table.value().owed() > 0)
    fmt::print(
        "trials that its search program owes: {}; where the command that runs it has gone: sgd-launch tune --resume "
        "{}\n",
        table.value().owed(), named.run.run);
  if (state == "lost")
    fmt::print("its launcher was killed, and its trials with it; to go on: sgd-launch tune --resume {}\n",
               as_typed(named.run.directory));
  return exit_code::kSucceeded;
}

int tune_best(const std::vector<std::string>& arguments) {
  bool as_json = false;
  bool as_job = false;
  const NamedExperiment named =
      name_experiment("best", "[--json | --job] [RUN]",
                      {flag({"--json"}, "what best.json says", as_json),
                       flag({"--job"}, "the trial's job file, which gives the same values again", as_job)},
                      arguments);
  if (!named.run.is_named) return named.run.exit_code;
  if (const Status read = read_experiment(named, [](const Json&) {}); !read)
    return refuse(exit_code::kNotFound, read.error().message);
  const auto found = best_of(named.run);
  if (!found) return refuse(found.error().code, found.error().message);
  const Json& best = found.value();
  if (as_job) {
    // Not that of the trial's folder: since it had its best value it may have taken another one's values.
    const Json& job = member(best, "job");
    if (!job.is_object())
      return refuse(exit_code::kNotFound,
                    fmt::format("what is known of the best trial of {} has no job: its parameters "
                                "make none in this version of sgd-launch",
                                name_of(named.run)));
    fmt::print("{}\n", dump_text(job, 2));
    return exit_code::kSucceeded;
  }
  if (as_json) {
    fmt::print("{}\n", dump_text(best, 2));
    return exit_code::kSucceeded;
  }
  fmt::print("trial      {}\n{:<10} {} at {}\n", read_or(best, "trial", 0), read_or(best, "metric", ""),
             read_or(best, "value", 0.0), read_or(best, "iteration", 0));
  for (const auto& [name, value] : member(best, "parameters").items()) fmt::print("{} = {}\n", name, dump_text(value));
  print_how(named.run, best);
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
