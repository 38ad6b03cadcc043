// `sgd-launch plan`: what a coordinator would do with a job now, node by node; nothing is submitted.

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/start_checks.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

void print_plan(const Json& plan) {
  if (read_or(plan, "starts_now", false))
    fmt::print("starts now: {} of {} workers\n", read_or(plan, "world_size", 0), read_or(plan, "num_workers", 0));
  else
    fmt::print("waits: {}\n", read_or(plan, "reason", ""));
  fmt::print("{:<16} {:>6}  {}\n", "node", "room", "ranks, or why not");
  for (const Json& node : member(plan, "nodes")) {
    std::string ranks;
    for (const Json& rank : member(node, "ranks")) ranks += (ranks.empty() ? "" : " ") + dump_text(rank);
    fmt::print("{:<16} {:>6}  {}\n", read_or(node, "node", ""), read_or(node, "room", 0),
               ranks.empty() ? read_or(node, "why_not", "") : ranks);
  }
}

}  // namespace

int plan_verb(const std::vector<std::string>& arguments) {
  bool as_json = false;
  std::vector<std::string> words;
  // The options are those of run; this one is its own.
  for (const std::string& word : arguments) {
    if (word == "--json")
      as_json = true;
    else
      words.push_back(word);
  }
  Diagnostics diagnostics;
  RunOptions options = parse_run_options(words, diagnostics);
  if (options.help) {
    fmt::print(
        "Example: sgd-launch plan job.json\nUsage: sgd-launch plan [--json] [options of run] (job.json | -- "
        "command...)\n");
    return exit_code::kSucceeded;
  }
  const auto coordinator = cluster_address(options.address.empty() ? "auto" : options.address, diagnostics);
  const job::LoadResult loaded = load_named_job(options, std::move(diagnostics));
  print(loaded.diagnostics);
  if (loaded.diagnostics.has_errors() || !coordinator) return exit_code::kUsage;
  const auto answer = ask_cluster(*coordinator, {{"request", "plan"}, {"job", loaded.job->resolved}});
  if (!answer) return refuse(exit_code::kUnreachable, answer.error().message);
  if (!read_or(answer.value(), "ok", false)) return refuse(exit_code::kUsage, read_or(answer.value(), "error", ""));
  const Json& plan = member(answer.value(), "plan");
  if (as_json)
    fmt::print("{}\n", dump_text(plan, 2));
  else
    print_plan(plan);
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
