// `sgd-launch events [RUN]` and `metrics [RUN]`: the lines of a run's events.jsonl and metrics.jsonl; -f goes on until
// the run ends.

#include <poll.h>

#include <fstream>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/control_client.hpp"
#include "launcher/cli/plain_verb.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/cli/run_fetch.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {
namespace {

/// Prints the whole lines that `file` has more; it stands behind the last one then.
void print_lines(std::ifstream& file) {
  for (std::string line;;) {
    const auto place = file.tellg();
    if (std::getline(file, line) && !file.eof()) {
      fmt::print("{}\n", line);
      continue;
    }
    file.clear();
    file.seekg(place);
    std::fflush(stdout);
    return;
  }
}

/// `what`: "events" or "metrics", the verb and the file's name.
int print_lines_of(const std::string& what, const std::vector<std::string>& arguments) {
  bool follow = false;
  std::string to;
  bool as_json = false;  // They are.
  const NamedRun run = name_run({what,
                                 "[-f] [RUN]",
                                 "sgd-launch " + what + " -f",
                                 {flag({"--follow", "-f"}, "go on until the run ends", follow),
                                  text_option({"--to"}, "DIR", "the file as it is into a folder, and no more", to),
                                  flag({"--json"}, "a JSON object a line, as always", as_json)},
                                 {}},
                                arguments);
  if (!run.is_named) return run.exit_code;
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
