#include "launcher/cli/experiment_checks.hpp"

#include <filesystem>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "common/job/cluster_checks.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/plugin_types.hpp"
#include "launcher/cli/start_checks.hpp"
#include "launcher/cli/trial_table.hpp"
#include "launcher/core/experiment.hpp"
#include "launcher/core/trial_job.hpp"

namespace sgd::cli {
namespace {

/// Trials that are told about; the others are wrong in the same ways.
constexpr std::size_t kTold = 8;

std::string values_in_words(const tune::Values& values) {
  std::string text;
  for (const auto& [name, value] : values.items())
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", name, shown_value(value));
  return text;
}

/// Each error once, with the first trial that has it.
void check_trials(const core::TrialBase& base, const tune::ExperimentSpec& spec, const std::string& source,
                  Diagnostics& diagnostics) {
  if (spec.search.kind == tune::SearchSpec::Kind::kExec) return;  // They are when they come.
  std::set<std::string> told;
  const tune::TrialList list = spec.list();
  for (tune::TrialId id = 0; id < list.size() && told.size() < kTold; ++id) {
    const tune::Trial trial = list.at(id);
    for (const Diagnostic& item : core::trial_job(base, spec, trial).diagnostics.items)
      if (!item.warning && told.size() < kTold && told.insert(item.message).second)
        diagnostics.error(source, 0, 0,
                          fmt::format("trial {} ({}): {}", id, values_in_words(trial.values), item.message));
  }
}

/// As a run without trials does: the node, which has several runs at a time, would start it in the trial's folder.
void start_where_we_are(nlohmann::json& job) {
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  if (!error && job.contains("command") && !job.contains("workdir") && !job.contains("files")) job["workdir"] = here;
}

/// What a trial cannot have: it is one of many, and nobody looks at its terminal.
void refuse_keys(const job::JobSpec& job, const std::string& source, Diagnostics& diagnostics) {
  if (!job.callbacks.empty())
    diagnostics.error(source, 0, 0,
                      "\"callbacks\" are for one run: leave them out of an experiment, whose events.jsonl and trials "
                      "have everything");
  if (job.checkpoint.after_save)
    diagnostics.error(source, 0, 0, "\"checkpoint.after_save\" is for one run: leave it out of an experiment");
  if (!job.resume_from.empty())
    diagnostics.error(source, 0, 0, "\"resume_from\" is for one run: leave it out of an experiment");
}

}  // namespace

std::optional<CheckedExperiment> check_experiment(const RunOptions& options, ExperimentPlace place,
                                                  Diagnostics& diagnostics) {
  job::LoadResult loaded = load_named_job(options, std::move(diagnostics));
  if (place == ExperimentPlace::kCluster) job::check_for_cluster(loaded);
  const std::string source = options.job_file.empty() ? "command line" : options.job_file;
  std::optional<tune::ExperimentSpec> spec;
  if (loaded.job && !core::is_experiment(*loaded.job))
    loaded.diagnostics.error(source, 0, 0,
                             "has no \"tune\", which says what is to be tried: give it one, or use sgd-launch run");
  else  // Also where the rest has errors: all of them are read at once.
    spec = tune::parse_experiment(loaded, loaded.diagnostics);
  diagnostics = std::move(loaded.diagnostics);
  if (!spec) return std::nullopt;
  CheckedExperiment checked{{}, *std::move(spec)};
  checked.run.base = core::TrialBase{loaded.given.value, loaded.folder};
  checked.run.base->given["name"] = loaded.job->name;
  checked.run.base->given.erase("$schema");
  if (place == ExperimentPlace::kHere) start_where_we_are(checked.run.base->given);
  refuse_keys(*loaded.job, source, diagnostics);
  const std::size_t before = diagnostics.items.size();
  check_trials(*checked.run.base, checked.spec, source, diagnostics);
  const bool is_exec = checked.spec.search.kind == tune::SearchSpec::Kind::kExec;
  // What is needed on a cluster is looked for by its nodes.
  if (diagnostics.items.size() == before && place == ExperimentPlace::kHere) {
    const job::LoadResult first = is_exec
                                      ? core::trial_job(*checked.run.base, checked.spec, {0, tune::Values::object()})
                                      : core::trial_job(*checked.run.base, checked.spec, checked.spec.list().at(0));
    if (first.job) check_start(*first.job, source, diagnostics);
  }
  if (place == ExperimentPlace::kCluster) warn_of_files_here(*loaded.job, diagnostics);
  if (is_exec) check_program("tune.search.command", checked.spec.search.command.front(), diagnostics);
  checked.run.placement_timeout = loaded.job->placement_timeout;
  checked.run.priority = loaded.job->priority;
  checked.run.job = std::move(*loaded.job);
  return checked;
}

}  // namespace sgd::cli
