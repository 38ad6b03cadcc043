// `sgd-launch events [RUN]` and `metrics [RUN]`: the lines of a run's events.jsonl and metrics.jsonl; -f goes on until
// the run ends.

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/control_client.hpp"
#include "launcher/cli/metrics_export.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/cli/run_fetch.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/terminal_text.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {
namespace {

/// Prints the whole lines that `file` has more; it stands behind the last one then.
void print_lines(std::ifstream& file) {
  static const bool is_terminal = ::isatty(STDOUT_FILENO) == 1;
  for (std::string line;;) {
    const auto place = file.tellg();
    if (std::getline(file, line) && !file.eof()) {
      fmt::print("{}\n", is_terminal ? for_terminal(line, Steering::kNone) : line);
      continue;
    }
    file.clear();
    file.seekg(place);
    if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category());
    return;
  }
}

/// "--as": one of a few words.
Option shape_option(std::string& shape) {
  return {{"--as"},
          "WHAT",
          "with --to: convert to tensorboard, csv or json (RaySGD's results.json)",
          "",
          [&shape](const std::string& value) {
            shape = value;
            const bool is_known = value == "tensorboard" || value == "csv" || value == "json";
            return is_known ? std::string() : fmt::format("expected tensorboard, csv or json, got \"{}\"", value);
          }};
}

/// `what`: "events" or "metrics", the verb and the file's name.
int print_lines_of(const std::string& what, const std::vector<std::string>& arguments) {
  bool follow = false;
  std::string to;
  std::string shape;
  bool as_json = false;  // They are.
  std::vector<Option> options = {flag({"--follow", "-f"}, "follow until the run ends", follow),
                                 text_option({"--to"}, "DIR", "copy the file into this folder, and print nothing", to),
                                 flag({"--json"}, "one JSON object per line, which is the default", as_json)};
  if (what == "metrics") options.push_back(shape_option(shape));
  const NamedRun run = name_run({what, "[-f] [RUN]", "sgd-launch " + what + " -f", options, {}}, arguments);
  if (!run.is_named) return run.exit_code;
  if (!shape.empty()) {
    if (to.empty()) return refuse(exit_code::kUsage, "--as needs --to DIR: the folder for what is made");
    return export_metrics(run, shape, absolute(to));
  }
  if (!to.empty()) return save_files(run, {{what, true}}, what + ".jsonl", absolute(to));
  if (run.cluster) return read_on_cluster(run, {{what, true}, {"until_now", !follow}}, true);
  std::ifstream file(run.directory + "/" + what + ".jsonl");
  if (!file) return refuse(exit_code::kNotFound, fmt::format("{} has no {}.jsonl", run.directory, what));
  for (;;) {
    // Asked before reading: what was written before the end is then surely read.
    bool is_live = false;
    if (follow) {
      const auto answer = ask_run(run.directory, {{"request", "status"}});
      is_live = answer && answer.value();
    }
    print_lines(file);
    if (!is_live) return exit_code::kSucceeded;
    (void)::poll(nullptr, 0, kFollowPollMs);
  }
}

}  // namespace

int events_verb(const std::vector<std::string>& arguments) {
  return print_lines_of("events", arguments);
}

int metrics_verb(const std::vector<std::string>& arguments) {
  return print_lines_of("metrics", arguments);
}

}  // namespace sgd::cli
