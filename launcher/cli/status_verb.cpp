// `sgd-launch status [RUN]`: what a run is doing, from its launcher; of one that has ended, from its summary.

#include <fstream>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/narrator.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

double number(const Json& json, const char* key) {
  return json.contains(key) && json.at(key).is_number() ? json.at(key).get<double>() : 0;
}

void print_live(const Json& status) {
  fmt::print("run        {}\nstate      {}", status.value("run", ""), status.value("state", ""));
  const std::string reason = status.value("reason", "");
  fmt::print("{}\nworkers    {} of {}, generation {}\n", reason.empty() ? "" : " (" + reason + ")",
             status.value("world_size", 0), status.value("num_workers", 0), status.value("generation", 0));
  if (status.value("epochs", 0) > 0)
    fmt::print("progress   epoch {}/{}, step {}, loss {:.4f}, {} samples/s\n", status.value("epoch", 0),
               status.value("epochs", 0), status.value("step", 0), number(status, "loss"),
               short_number(number(status, "samples_per_s")));
  fmt::print("failures   {}\nfolder     {}\n", status.value("failures", 0), status.value("run_dir", ""));
  fmt::print("{:>6} {:<12} {:>8} {:<9} {:>10} {:>10}\n", "rank", "node", "pid", "state", "step", "heartbeat");
  for (const Json& rank : status.at("ranks")) {
    const std::string age =
        rank.at("heartbeat_age_s").is_number() ? fmt::format("{:.1f}s", rank.at("heartbeat_age_s").get<double>()) : "-";
    fmt::print("{:>6} {:<12} {:>8} {:<9} {:>10} {:>10}\n", rank.value("rank", 0), rank.value("node", ""),
               rank.value("pid", 0), rank.value("state", ""), rank.value("step", 0), age);
  }
}

void print_ended(const std::string& run_dir, const Json& summary) {
  fmt::print("run        {}\nstate      {} (exit code {})\n", summary.value("run", ""), summary.value("state", ""),
             summary.value("exit_code", 0));
  if (summary.at("error").is_string()) fmt::print("error      {}\n", summary.at("error").get<std::string>());
  fmt::print("progress   {} epochs, {} steps in {:.2f} s, {} failures\n", summary.value("epochs", 0),
             summary.value("steps", 0), number(summary, "wall_s"), summary.value("failures", 0));
  if (summary.at("checkpoint").is_string())
    fmt::print("checkpoint {}/{}\n", run_dir, summary.at("checkpoint").get<std::string>());
  fmt::print("folder     {}\n", run_dir);
}

/// Status of a run whose launcher does not answer: its summary, or the word that it has none.
Json read_ended(const std::string& run_dir) {
  std::ifstream file(run_dir + "/summary.json");
  Json summary = file ? Json::parse(file, nullptr, false) : Json();
  if (summary.is_object()) return summary;
  return {{"schema_version", 1},
          {"run", run_dir.substr(run_dir.rfind('/') + 1)},
          {"state", "lost"},
          {"exit_code", nullptr},
          {"error", "its launcher was killed before it could write a summary"},
          {"checkpoint", nullptr}};
}

}  // namespace

int status_verb(const std::vector<std::string>& arguments) {
  bool as_json = false;
  const NamedRun run = name_run(
      {"status", "[--json] [RUN]", "sgd-launch status", {flag({"--json"}, "one JSON object", as_json)}, {}}, arguments);
  if (!run.is_named) return run.exit_code;
  const auto answer = ask(run, {{"request", "status"}});
  if (!answer) return refuse(exit_code::kUnreachable, answer.error().message);
  const bool is_answered = answer.value() && answer.value()->value("ok", false);
  if (run.cluster && !is_answered) return refuse(exit_code::kNotFound, answer.value()->value("error", ""));
  const bool is_live = is_answered && answer.value()->contains("status");
  const Json status = is_live       ? answer.value()->at("status")
                      : run.cluster ? answer.value()->at("summary")
                                    : read_ended(run.directory);
  const std::string folder = run.cluster ? answer.value()->value("run_dir", "") : run.directory;
  if (as_json)
    fmt::print("{}\n", status.dump(2));
  else if (is_live)
    print_live(status);
  else
    print_ended(folder, status);
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
