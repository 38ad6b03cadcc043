#include "launcher/cli/several_nodes.hpp"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/job/cluster_checks.hpp"
#include "launcher/cli/first_node.hpp"
#include "launcher/cli/local_runs.hpp"
#include "launcher/cli/other_node.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/start_checks.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/rendezvous/own_host.hpp"

namespace sgd::cli {
namespace {

/// torchrun's number of workers is that of each node, a job's is that of all.
void count_for_all(RunOptions& options, const rendezvous::NodesPlan& plan, Diagnostics& diagnostics) {
  std::erase_if(options.overrides.sets, [](const job::Overrides::Set& one) {
    return one.path == "process.master_addr" ||
           one.path == "process.master_port";  // Where rank 0 is, the run finds out.
  });
  std::string value;
  std::string source;
  for (const job::Overrides::Set& one : options.overrides.sets) {
    if (one.path != "num_workers") continue;
    value = one.value;
    source = one.source;
  }
  if (source.empty() && !options.job_file.empty()) return;
  const std::optional<int> each = source.empty() ? std::optional<int>(1) : whole_number(value);
  if (!each || *each < 1) {
    std::erase_if(options.overrides.sets, [](const auto& one) { return one.path == "num_workers"; });  // Told of once.
    return diagnostics.error(source, 0, 0, fmt::format("expected a number of workers from 1, got \"{}\"", value));
  }
  const auto set = [&options](const char* path, const std::string& text) {
    options.overrides.sets.push_back({path, text, options.source_of("--nnodes")});
  };
  const auto on_nodes = [&each](int nodes) { return fmt::format("{}", std::int64_t{*each} * nodes); };
  set("num_workers", on_nodes(plan.most));
  if (plan.least == plan.most) {
    const bool is_said = std::any_of(options.overrides.sets.begin(), options.overrides.sets.end(),
                                     [](const job::Overrides::Set& one) { return one.path == "min_workers"; });
    // As torchrun's: a node that is lost is waited for, and no script goes on with fewer than were asked for.
    if (options.job_file.empty() && !is_said) set("min_workers", on_nodes(plan.least));
    return;
  }
  set("min_workers", on_nodes(plan.least));
  set("start", "elastic");
  if (!options.job_file.empty()) return;
  // As torchrun does; a job says itself when it grows.
  set("recovery.scale_up", "at_once");
  set("recovery.cooldown", "1s");
}

/// As the first machine, to the end of the run.
int lead(NodeLauncher& launcher, FirstNode& first, const job::JobSpec& job) {
  RemoteRun run(launcher.options(), launcher.plan().head, launcher.tls());
  if (!launcher.output_socket().empty()) run.show_own(launcher.output_socket(), launcher.workers_here());
  std::optional<ListedRun> listed;
  run.on_run_dir = [&launcher, &listed](const std::string& run_dir) {
    Status noted = note_coordinator(run_dir, launcher.plan().head, launcher.folders().client);
    if (noted && !listed) {
      auto made = ListedRun::make(run_dir);
      if (made) listed.emplace(std::move(made).value());
      if (!made) noted = made.error();
    }
    if (!noted) launcher.print("other terminals cannot reach this run: " + noted.error().message);
  };
  const int code = run.submit({{"job", *job.resolved}}, false);
  listed.reset();
  first.linger();
  return code;
}

int join(const RunOptions& options, const rendezvous::NodesPlan& plan, const job::JobSpec& job, int workers_here) {
  NodeLauncher launcher(options, plan, workers_here);
  const bool is_first = plan.rank ? *plan.rank == 0 : rendezvous::is_own_host(plan.head.host);
  if (const Status begun = launcher.begin(is_first); !begun) return refuse(exit_code::kUsage, begun.error().message);
  if (is_first) {
    FirstNode first(launcher);
    switch (first.gather()) {
      case FirstNode::Gathered::kEnough:
        return lead(launcher, first, job);
      case FirstNode::Gathered::kEnded:
        return first.exit_code();
      case FirstNode::Gathered::kIsAnother:
        if (const Status begun = launcher.begin(false); !begun) return refuse(exit_code::kUsage, begun.error().message);
        break;
    }
  }
  return OtherNode(launcher, job).take_part();
}

}  // namespace

int run_on_several_nodes(RunOptions options, Diagnostics found) {
  const rendezvous::NodesPlan plan = *options.several_nodes;
  count_for_all(options, plan, found);
  job::LoadResult loaded = load_named_job(options, std::move(found));
  job::check_for_cluster(loaded);
  refuse_local_options(options, loaded.diagnostics);
  refuse_run_dir(options, loaded.diagnostics);
  if (options.lifeline)
    loaded.diagnostics.error("--lifeline", 0, 0, "belongs to a run of one launcher: this one has one on each machine");
  int each = 0;
  if (loaded.job) {
    each = (loaded.job->num_workers + plan.most - 1) / plan.most;
    job::JobSpec here = *loaded.job;  // This machine needs what its own workers need.
    here.num_workers = here.min_workers = each;
    check_start(here, options.job_file, loaded.diagnostics);
  }
  print(loaded.diagnostics);
  if (loaded.diagnostics.has_errors()) return exit_code::kUsage;
  return join(options, plan, *loaded.job, each);
}

}  // namespace sgd::cli
