// `sgd-launch plan`: what a coordinator, or without one this machine, would do with a job now, node by node; nothing is
// submitted.

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/job/cluster_checks.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/help_text.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/start_checks.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/core/placement.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

void print_plan(const Json& plan) {
  if (read_or(plan, "starts_now", false))
    fmt::print("starts now: {} of {} workers\n", read_or(plan, "world_size", 0), read_or(plan, "num_workers", 0));
  else
    fmt::print("{}: {}\n", member(plan, "refusals").empty() ? "waits" : "would fail", read_or(plan, "reason", ""));
  fmt::print("{:<16} {:>6}  {}\n", "node", "room", "ranks, or why not");
  for (const Json& node : member(plan, "nodes")) {
    std::string ranks;
    for (const Json& rank : member(node, "ranks")) ranks += (ranks.empty() ? "" : " ") + dump_text(rank);
    fmt::print("{:<16} {:>6}  {}\n", read_or(node, "node", ""), read_or(node, "room", 0),
               ranks.empty() ? read_or(node, "why_not", "") : ranks);
  }
  for (const Json& node : member(plan, "silent"))
    fmt::print("{} has not said whether it would start it\n", dump_text(node));
}

void show_plan(const Json& plan, bool as_json) {
  if (as_json)
    fmt::print("{}\n", dump_text(plan, 2));
  else
    print_plan(plan);
}

/// A run on this machine has it to itself.
Json local_plan(const job::JobSpec& job, const RunOptions& options) {
  const int room = options.slots.value_or(job.num_workers);
  const core::Placement placed =
      core::place({{"localhost", room}}, job.num_workers, job.elastic_start ? job.min_workers : job.num_workers);
  Json ranks = Json::array();
  for (const core::NodePlace& node : placed.nodes)
    for (const Rank rank : node.ranks) ranks.push_back(rank);
  return {{"schema_version", 1},
          {"starts_now", placed.world_size > 0},
          {"reason", placed.reason},
          {"world_size", placed.world_size},
          {"num_workers", job.num_workers},
          {"nodes", {{{"node", "localhost"}, {"room", room}, {"ranks", ranks}, {"why_not", placed.reason}}}}};
}

/// Where nobody names a coordinator, the one of this machine if it runs; else the run is one of this machine.
std::optional<net::Address> coordinator_of(const std::string& given, Diagnostics& diagnostics) {
  const auto named = cluster_address(given, diagnostics);
  if (named || !given.empty() || diagnostics.has_errors()) return named;
  const auto here = coordinator_here();
  return here ? std::optional(here.value()) : std::nullopt;
}

}  // namespace

int plan_verb(const std::vector<std::string>& arguments) {
  bool as_json = false;
  Diagnostics diagnostics;
  RunOptions options = parse_run_options(arguments, diagnostics, {flag({"--json"}, "one JSON object", as_json)});
  if (options.help) {
    std::string address;
    bool help = false;
    print_help("plan",
               "Example: sgd-launch plan job.json\n"
               "Usage: sgd-launch plan [--json] [options of run] (job.json | -- command...)\n" +
                   describe({flag({"--json"}, "one JSON object", as_json), address_option(address),
                             flag({"--help", "-h"}, "this text", help)}));
    return exit_code::kSucceeded;
  }
  const auto coordinator = coordinator_of(options.address, diagnostics);
  job::LoadResult loaded = load_named_job(options, std::move(diagnostics));
  if (coordinator) job::check_for_cluster(loaded);
  if (loaded.job && coordinator) warn_of_files_here(*loaded.job, loaded.diagnostics);
  if (loaded.job && coordinator) refuse_experiment(*loaded.job, options.job_file, loaded.diagnostics);
  if (loaded.job && !coordinator) check_start(*loaded.job, options.job_file, loaded.diagnostics);
  print(loaded.diagnostics);
  if (loaded.diagnostics.has_errors()) return exit_code::kUsage;
  if (!coordinator) {
    show_plan(local_plan(*loaded.job, options), as_json);
    return exit_code::kSucceeded;
  }
  const auto answer = ask_cluster(*coordinator, {{"request", "plan"}, {"job", *loaded.job->resolved}});
  if (!answer) return refuse(exit_code::kUnreachable, answer.error().message);
  if (!read_or(answer.value(), "ok", false)) return refuse(exit_code::kUsage, read_or(answer.value(), "error", ""));
  show_plan(member(answer.value(), "plan"), as_json);
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
