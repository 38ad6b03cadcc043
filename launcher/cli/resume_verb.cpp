// `sgd-launch resume [RUN]`: continues a run that has ended, in its own folder. All checks come
// first; the folder is not touched before they have passed.

#include <unistd.h>

#include <utility>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/job/cluster_checks.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/control_client.hpp"
#include "launcher/cli/local_run.hpp"
#include "launcher/cli/plugin_types.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/start_checks.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/storage/resume_fit.hpp"

namespace sgd::cli {
namespace {

/// Of a command "auto" counts GPUs. What is wrong with a job, or missing, is told of later.
bool is_of_command(const nlohmann::ordered_json& job) {
  return !member(job, "command").empty();
}

/// The coordinator has the run, and changes are typed here: its job comes, is changed, and goes back.
int resume_on_cluster(const NamedRun& run, RunOptions& options) {
  const auto answer = ask(run, {{"request", "job"}});
  if (!answer) return refuse(exit_code::kUnreachable, answer.error().message);
  if (!read_or(*answer.value(), "ok", false))
    return refuse(exit_code::kNotFound, read_or(*answer.value(), "error", ""));
  Diagnostics counted;
  count_workers(options, is_of_command(member(*answer.value(), "job")), counted);
  job::LoadResult loaded = load_with_plugins([&](const job::Registered& registered) {
    return job::load_changed(member(*answer.value(), "job"), options.overrides, registered);
  });
  loaded.diagnostics.items.insert(loaded.diagnostics.items.end(), counted.items.begin(), counted.items.end());
  job::check_for_cluster(loaded);
  refuse_local_options(options, loaded.diagnostics);
  print(loaded.diagnostics);
  if (loaded.diagnostics.has_errors()) return exit_code::kUsage;
  auto tls = tls_of(run);
  if (!tls) return refuse(exit_code::kUsage, tls.error().message);
  return RemoteRun(options, *run.cluster, std::move(tls).value())
      .submit({{"request", "resume"}, {"run", member(*answer.value(), "run")}, {"job", *loaded.job->resolved}},
              options.detach);
}

}  // namespace

int resume_verb(const std::vector<std::string>& arguments) {
  RunOptions options;
  std::vector<Option> table = resume_option_table(options);
  table.push_back(detach_option(options));
  const NamedRun run = name_run(
      {"resume", "[options] [RUN]", "sgd-launch resume --set training.epochs=8", std::move(table), {}}, arguments);
  if (!run.is_named) return run.exit_code;
  if (run.cluster) return resume_on_cluster(run, options);
  const auto answer = ask_run(run.directory, {{"request", "status"}});
  if (!answer) return refuse(exit_code::kUnreachable, answer.error().message);
  if (answer.value())
    return refuse(
        exit_code::kUsage,
        fmt::format("{} is still running: sgd-launch status shows it, sgd-launch stop ends it", run.directory));

  const std::string file = run.directory + "/job.json";
  Diagnostics counted;
  count_workers(options, is_of_command(json::read_ordered_file(file)), counted);
  job::LoadResult loaded = load_with_plugins(
      [&](const job::Registered& registered) { return job::load_run_job(file, options.overrides, registered); });
  Diagnostics& diagnostics = loaded.diagnostics;
  diagnostics.items.insert(diagnostics.items.end(), counted.items.begin(), counted.items.end());
  if (options.detach)
    diagnostics.error("--detach", 0, 0, "needs a coordinator: a run on this machine ends with its launcher");
  for (const job::Overrides::Set& set : options.overrides.sets)
    if (set.path == "resume_from")
      diagnostics.error(set.source, 0, 0, "is for a new run; resume goes on from what the run itself has saved");
  if (loaded.job) check_start(*loaded.job, file, diagnostics);
  if (::access(run.directory.c_str(), W_OK | X_OK) != 0)
    diagnostics.error(run.directory, 0, 0, system_error("cannot write to it").message);
  auto history = storage::read_history(run.directory);
  if (!history) diagnostics.error(run.directory, 0, 0, history.error().message);
  if (loaded.job && history) {
    const std::string refusal = storage::fit_to_job(*loaded.job, history.value());
    if (!refusal.empty()) diagnostics.error("sgd-launch", 0, 0, refusal);
    if (const Status read = storage::add_scores(*loaded.job, run.directory, history.value()); !read)
      diagnostics.error(run.directory, 0, 0, read.error().message);
  }
  print(diagnostics);
  if (diagnostics.has_errors()) return exit_code::kUsage;
  storage::RunPlace place{history.value().id, run.directory};
  return LocalRun(options, std::move(*loaded.job), std::move(place), std::move(history).value()).run();
}

}  // namespace sgd::cli
