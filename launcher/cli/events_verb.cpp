// `sgd-launch events [RUN]`: the lines of a run's events.jsonl; -f goes on until the run ends.

#include <poll.h>

#include <fstream>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/control_client.hpp"
#include "launcher/cli/remote_run.hpp"
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

}  // namespace

int events_verb(const std::vector<std::string>& arguments) {
  bool follow = false;
  bool as_json = false;  // They are.
  const NamedRun run = name_run({"events",
                                 "[-f] [RUN]",
                                 "sgd-launch events -f",
                                 {flag({"--follow", "-f"}, "go on until the run ends", follow),
                                  flag({"--json"}, "a JSON object a line, as always", as_json)},
                                 {}},
                                arguments);
  if (!run.is_named) return run.exit_code;
  if (run.cluster) return read_on_cluster(run, {{"events", true}, {"until_now", !follow}}, true);
  std::ifstream file(run.directory + "/events.jsonl");
  if (!file) return refuse(exit_code::kNotFound, run.directory + " has no events.jsonl");
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

}  // namespace sgd::cli
