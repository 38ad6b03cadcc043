#include "launcher/cli/tune_resume.hpp"

#include <utility>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/cluster_client.hpp"
#include "launcher/cli/local_experiment.hpp"
#include "launcher/cli/local_node.hpp"
#include "launcher/cli/remote_run.hpp"
#include "launcher/cli/run_fetch.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/run_place.hpp"
#include "launcher/cli/scratch_folder.hpp"
#include "launcher/cli/start_checks.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/core/experiment.hpp"
#include "launcher/core/secrets.hpp"
#include "launcher/process/random_seed.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Everything but its samples is what it was: else its trials would not be those of one experiment. 0: they are, too.
std::int64_t samples_of(const RunOptions& options, Diagnostics& diagnostics) {
  std::int64_t samples = 0;
  for (const job::Overrides::Set& set : options.overrides.sets) {
    const auto number = whole_number(set.value);
    if (set.path != "tune.samples")
      diagnostics.error(set.source, 0, 0,
                        "changes the job, which is fixed: of an experiment that goes on only --samples may change");
    else if (!number || *number < 1)
      diagnostics.error(set.source, 0, 0, fmt::format("expected a whole number from 1, got \"{}\"", set.value));
    else
      samples = *number;
  }
  return samples;
}

int resume_here(const RunOptions& options, const std::string& folder, std::int64_t samples, Diagnostics diagnostics) {
  const auto found = find_run(folder);
  if (options.detach)
    diagnostics.error("--detach", 0, 0, "needs a coordinator: an experiment on this machine ends with its launcher");
  const bool is_wrong = diagnostics.has_errors();
  if (!found) diagnostics.error("--resume", 0, 0, found.error().message);
  print(diagnostics);
  if (is_wrong) return exit_code::kUsage;
  if (!found) return exit_code::kNotFound;
  core::RunDefinition experiment;
  experiment.run_dir = found.value();
  return LocalExperiment(options, std::move(experiment)).resume(samples);
}

/// Its lines so far; one that is not whole yet comes with those that are followed.
Result<RemoteRun::Seen> seen_of(const NamedRun& run, Json job) {
  const ScratchFolder here("sgd-events");
  if (here.path().empty()) return system_error("cannot make a folder in /tmp");
  if (auto fetched = fetch_files(run, {{"events", true}}, here.path()); !fetched) return fetched.error();
  const Result<std::string> read = json::text_of_file(here.path() + "/events.jsonl");
  if (!read) return read.error();
  const std::string& text = read.value();
  RemoteRun::Seen seen{run.run, std::move(job), {}, 0};
  for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n', seen.bytes)) {
    Json event = Json::parse(text.begin() + static_cast<std::ptrdiff_t>(seen.bytes),
                             text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (event.is_object()) seen.events.push_back(std::move(event));
    seen.bytes = end + 1;
  }
  return seen;
}

/// The search program, if it has one; an error is said.
std::optional<tune::ExperimentSpec> checked_spec(const RunOptions& options, const NamedRun& run, const Json& job,
                                                 Diagnostics diagnostics) {
  job::LoadResult loaded = job::load_resolved(job);
  std::optional<tune::ExperimentSpec> spec;
  if (loaded.job && !core::is_experiment(*loaded.job))
    diagnostics.error("--resume", 0, 0, fmt::format("{} is no experiment: sgd-launch resume {}", run.run, run.run));
  else
    spec = tune::parse_experiment(loaded, loaded.diagnostics);
  for (Diagnostic& item : loaded.diagnostics.items) diagnostics.items.push_back(std::move(item));
  refuse_local_options(options, diagnostics);
  if (spec && spec->search.kind == tune::SearchSpec::Kind::kExec) {
    check_program("tune.search.command", spec->search.command.front(), diagnostics);
    if (options.detach)
      diagnostics.error("--detach", 0, 0,
                        "the job's search program runs beside this command, which has to stay: leave it out");
  }
  print(diagnostics);
  return diagnostics.has_errors() ? std::nullopt : std::move(spec);
}

int resume_on_cluster(const RunOptions& options, NamedRun run, std::int64_t samples, Diagnostics diagnostics) {
  const auto asked_job = ask_for(run, {{"request", "job"}});
  if (!asked_job) return refuse(asked_job.error().code, asked_job.error().message);
  run.run = read_or(asked_job.value(), "run", "");
  Json job = member(asked_job.value(), "job");
  auto spec = checked_spec(options, run, job, std::move(diagnostics));
  if (!spec) return exit_code::kUsage;
  auto tls = tls_of(run);
  if (!tls) return refuse(exit_code::kUsage, tls.error().message);
  RemoteRun remote(options, *run.cluster, std::move(tls).value());
  const bool is_searched = spec->search.kind == tune::SearchSpec::Kind::kExec;
  Json request = {{"request", "resume"}, {"samples", samples}};
  const std::string searcher = core::Secrets(process::random_seed()).next();
  if (is_searched) request["searcher"] = searcher;
  const auto resumed = ask_for(run, request);
  if (!resumed) return refuse(resumed.error().code, resumed.error().message);
  read_if_fits(resumed.value(), "samples", spec->samples);  // From now on; its job.json says what it had at first.
  if (is_searched) remote.search_with(*std::move(spec), searcher);
  if (options.detach) {
    fmt::print("{}\n", run.run);
    return exit_code::kSucceeded;
  }
  auto seen = seen_of(run, std::move(job));
  if (!seen) return refuse(exit_code::kFailed, seen.error().message);
  return remote.join(std::move(seen).value());
}

}  // namespace

int resume_experiment(const RunOptions& options, const std::string& name,
                      const std::optional<net::Address>& coordinator, Diagnostics diagnostics) {
  const std::int64_t samples = samples_of(options, diagnostics);
  if (!options.run_dir.empty())
    diagnostics.error("--run-dir", 0, 0, "is of a new experiment: --resume names the folder");
  if (!coordinator) return resume_here(options, name, samples, std::move(diagnostics));
  NamedRun run;
  run.is_named = true;
  run.cluster = coordinator;
  run.run = name;
  return resume_on_cluster(options, std::move(run), samples, std::move(diagnostics));
}

}  // namespace sgd::cli
