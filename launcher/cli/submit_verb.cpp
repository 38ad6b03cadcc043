// `sgd-launch submit`, and `sgd-launch run` with a coordinator: the job goes to the cluster, and its run is followed
// here.

#include <cerrno>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/job/cluster_checks.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/help_text.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/run_place.hpp"
#include "launcher/cli/start_checks.hpp"
#include "launcher/cli/verbs.hpp"

namespace sgd::cli {

void refuse_run_dir(const RunOptions& options, Diagnostics& diagnostics) {
  if (!options.run_dir.empty())
    diagnostics.error("--run-dir", 0, 0, "belongs to a run on this machine; this one goes to a coordinator");
}

void refuse_local_options(const RunOptions& options, Diagnostics& diagnostics) {
  const auto only_here = [&](const char* option) {
    diagnostics.error(option, 0, 0, "belongs to a run on this machine; this one goes to a coordinator");
  };
  if (options.slots) only_here("--slots");
  if (options.local_nodes != 1) only_here("--local-nodes");
  if (!options.nodes.nodes.empty() && options.nodes.nodes != "1" && !options.address.empty())
    diagnostics.error(
        options.source_of("--nnodes"), 0, 0,
        "is for machines without a coordinator: the one that this run goes to places --num-workers itself");
}

int run_on_cluster(const RunOptions& options, const std::optional<net::Address>& coordinator, Diagnostics found) {
  job::LoadResult loaded = load_named_job(options, std::move(found));
  if (loaded.job) refuse_experiment(*loaded.job, options.job_file, loaded.diagnostics);
  job::check_for_cluster(loaded);
  if (loaded.job) warn_of_files_here(*loaded.job, loaded.diagnostics);
  refuse_local_options(options, loaded.diagnostics);
  const bool is_copied = !options.run_dir.empty();
  if (is_copied && options.detach)
    loaded.diagnostics.error("--run-dir", 0, 0, "is filled while the run is followed: leave --detach out");
  const auto place = is_copied ? place_of_new_run("run", options.run_dir, loaded.diagnostics) : Error{};
  print(loaded.diagnostics);
  if (loaded.diagnostics.has_errors()) return exit_code::kUsage;
  auto tls = user_tls(*coordinator);
  if (!tls) return refuse(exit_code::kUsage, tls.error().message);
  RemoteRun run(options, *coordinator, std::move(tls).value());
  if (is_copied) {
    auto copy = RunCopy::create(place.value().directory, *loaded.job->resolved);
    if (!copy) return refuse(exit_code::kUsage, copy.error().message);
    run.copy_to(std::move(copy).value());
  }
  return run.submit({{"job", *loaded.job->resolved}}, options.detach);
}

int submit_verb(const std::vector<std::string>& arguments) {
  Diagnostics diagnostics;
  RunOptions options = parse_run_options(arguments, diagnostics);
  if (options.help) {
    RunOptions unused;
    print_help("submit",
               "Example: sgd-launch submit --detach job.json\n"
               "Usage: sgd-launch submit [options] (job.json | -- command...)\n" +
                   describe(run_option_table(unused)));
    return exit_code::kSucceeded;
  }
  auto coordinator = cluster_address(options.address, diagnostics);
  if (!coordinator && options.address.empty() && !diagnostics.has_errors()) {
    const auto here = coordinator_here();
    const bool is_there = here || here.error().code != ENOENT;  // Why it does not answer is told when it is asked.
    if (is_there)
      coordinator = cluster_address("auto", diagnostics);
    else
      diagnostics.error("submit", 0, 0,
                        "no cluster is named, and no coordinator runs on this machine: name one with --address "
                        "HOST:PORT or SGD_ADDRESS, or start one: sgd-launch coordinator");
  }
  if (options.address.empty()) options.address = "auto";  // It goes to a coordinator, whoever has named it.
  if (!coordinator && !diagnostics.has_errors())
    diagnostics.error("submit", 0, 0, "needs a coordinator: name it with --address HOST:PORT");
  return run_on_cluster(options, coordinator, std::move(diagnostics));
}

}  // namespace sgd::cli
