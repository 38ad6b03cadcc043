// `sgd-launch validate [RUN|CHECKPOINT]`: a new run of the same job that validates the weights which were saved, and
// ends. The run that saved them stays as it is.

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "common/checkpoint/manifest.hpp"
#include "common/exit_codes.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/find_origin.hpp"
#include "launcher/cli/local_node.hpp"
#include "launcher/cli/local_run.hpp"
#include "launcher/cli/plugin_types.hpp"
#include "launcher/cli/run_naming.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/run_place.hpp"
#include "launcher/cli/start_checks.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/storage/ahead_checkpoints.hpp"

namespace sgd::cli {
namespace {

namespace fs = std::filesystem;

/// The run that a checkpoint lies in stands for it among `words`; returns the checkpoint's folder, or nothing.
std::string take_checkpoint(std::vector<std::string>& words) {
  std::error_code error;
  if (words.size() != 1 || !fs::exists(fs::path(words.front()) / checkpoint::kManifestFile, error)) return {};
  const fs::path folder = fs::canonical(words.front(), error);
  words.front() = storage::run_of_checkpoint(folder.string());
  return folder.string();
}

/// Of a run whose workers are no training of ours; empty: they are.
std::string command_of_run(const std::string& file) {
  const nlohmann::ordered_json job = json::read_ordered_file(file);
  std::string command;
  for (const auto& word : member(job, "command"))
    if (word.is_string()) command += (command.empty() ? "" : " ") + word.get_ref<const std::string&>();
  return command;
}

}  // namespace

int validate_verb(const std::vector<std::string>& arguments) {
  RunOptions options;
  std::vector<Option> table = resume_option_table(options);
  table.push_back(run_dir_option(options));
  std::string checkpoint;
  const NamedRun run =
      name_run({"validate", "[options] [RUN|CHECKPOINT]",
                "sgd-launch validate latest --set training.dataset.path=other-data", std::move(table),
                [&checkpoint](std::vector<std::string>& words, Diagnostics&) { checkpoint = take_checkpoint(words); }},
               arguments);
  if (!run.is_named) return run.exit_code;
  if (run.cluster)
    return refuse(exit_code::kUsage,
                  "validate is for runs on this machine; on a cluster submit a job with \"resume_from\" and "
                  "\"training\": {\"validate_only\": true}");
  const std::string file = run.directory + "/job.json";
  if (const std::string command = command_of_run(file); !command.empty())
    return refuse(exit_code::kUsage,
                  fmt::format("{} is a run of a command ({}), whose weights only its own program can measure: start "
                              "that with sgd-launch -- COMMAND",
                              as_typed(run.directory), command));
  for (const auto& [path, value] : {std::pair{"training.validate_only", std::string("true")},
                                    {"checkpoint.every", "never"},
                                    {"resume_from", checkpoint.empty() ? run.directory : checkpoint}})
    options.overrides.sets.push_back({path, value, "validate"});
  Diagnostics counted;
  count_workers(options, false, counted);
  job::LoadResult loaded = load_with_plugins(
      [&](const job::Registered& registered) { return job::load_run_job(file, options.overrides, registered); });
  loaded.diagnostics.items.insert(loaded.diagnostics.items.end(), counted.items.begin(), counted.items.end());
  if (loaded.job) check_start(*loaded.job, file, loaded.diagnostics);
  auto origin = find_origin(loaded);
  const auto place = place_of_new_run(loaded.job ? loaded.job->name : "run", options.run_dir, loaded.diagnostics);
  print(loaded.diagnostics);
  if (loaded.diagnostics.has_errors()) return exit_code::kUsage;
  return LocalRun(options, std::move(*loaded.job), place.value(), std::nullopt, std::move(origin)).run();
}

}  // namespace sgd::cli
