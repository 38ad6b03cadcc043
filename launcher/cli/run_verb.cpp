// `sgd-launch [run]`: check everything, create nothing until all is well, then run it here.

#include <cstdio>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/find_origin.hpp"
#include "launcher/cli/help_text.hpp"
#include "launcher/cli/local_run.hpp"
#include "launcher/cli/run_place.hpp"
#include "launcher/cli/several_nodes.hpp"
#include "launcher/cli/start_checks.hpp"
#include "launcher/cli/terminal_text.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {
void print(const Diagnostics& diagnostics) {
  for (const Diagnostic& item : diagnostics.items)
    fmt::print(stderr, "{}\n", for_terminal(item.text(), Steering::kNone));
}

int run_verb(const std::vector<std::string>& arguments) {
  Diagnostics diagnostics;
  const RunOptions options = parse_run_options(arguments, diagnostics);
  if (options.help) {
    print_help("", run_help());
    return exit_code::kSucceeded;
  }
  const auto coordinator = cluster_address(options.address, diagnostics);
  if (options.detach && !coordinator)
    diagnostics.error("--detach", 0, 0, "needs a coordinator: a run on this machine ends with its launcher");
  if (coordinator) return run_on_cluster(options, coordinator, std::move(diagnostics));
  if (options.several_nodes) return run_on_several_nodes(options, std::move(diagnostics));
  job::LoadResult loaded = load_named_job(options, std::move(diagnostics));
  if (loaded.job) check_start(*loaded.job, options.job_file, loaded.diagnostics);
  auto origin = find_origin(loaded);
  const auto place = place_of_new_run(loaded.job ? loaded.job->name : "run", options.run_dir, loaded.diagnostics);
  print(loaded.diagnostics);
  if (loaded.diagnostics.has_errors()) return exit_code::kUsage;
  return LocalRun(options, std::move(*loaded.job), place.value(), std::nullopt, std::move(origin)).run();
}

}  // namespace sgd::cli
