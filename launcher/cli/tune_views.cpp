#include "launcher/cli/tune_views.hpp"

#include <fstream>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/control_client.hpp"
#include "launcher/cli/json_lines.hpp"
#include "launcher/cli/run_place.hpp"
#include "launcher/cli/trial_table.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

Result<TrialTable> table_of(const std::string& run_dir) {
  TrialTable table;
  const Status read = read_experiment(run_dir, [&table](const Json& event) { table.add(event); });
  if (!read) return read.error();
  return table;
}

/// "running", how it ended, or "lost": its launcher was killed.
std::string state_of(const std::string& run_dir) {
  const auto answer = ask_run(run_dir, {{"request", "status"}});
  if (!answer || answer.value()) return "running";
  std::ifstream file(run_dir + "/summary.json");
  return read_or(file ? Json::parse(file, nullptr, false) : Json(), "state", "lost");
}

}  // namespace

NamedRun name_experiment(const char* verb, const std::string& usage, std::vector<Option> options,
                         const std::vector<std::string>& arguments) {
  const std::string name = std::string("tune ") + verb;
  NamedRun run = name_run({name, usage, "sgd-launch " + name, std::move(options), {}}, arguments);
  if (!run.is_named || !run.cluster) return run;
  run.is_named = false;
  run.exit_code = refuse(exit_code::kUsage, fmt::format("{} reads a folder of this machine; of an experiment on a "
                                                        "cluster: sgd-launch status RUN, sgd-launch events RUN",
                                                        name));
  return run;
}

Status read_experiment(const std::string& run_dir, const std::function<void(const Json& event)>& take) {
  bool is_experiment = false;
  const bool is_there = each_object(run_dir + "/events.jsonl", [&](const Json& event) {
    is_experiment = is_experiment || read_or(event, "event", "") == "experiment_started";
    take(event);
  });
  if (!is_there) return system_error("cannot open " + run_dir + "/events.jsonl");
  if (is_experiment) return {};
  return Error{run_dir + " is no experiment: sgd-launch status shows a run"};
}

int tune_status(const std::vector<std::string>& arguments) {
  bool as_json = false;
  const NamedRun run =
      name_experiment("status", "[--json] [RUN]", {flag({"--json"}, "one JSON object", as_json)}, arguments);
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

int tune_best(const std::vector<std::string>& arguments) {
  bool as_json = false;
  const NamedRun run =
      name_experiment("best", "[--json] [RUN]", {flag({"--json"}, "one JSON object", as_json)}, arguments);
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

}  // namespace sgd::cli
