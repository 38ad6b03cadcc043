#include "worker/standalone/config_command.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/exit_codes.hpp"
#include "common/job/load.hpp"
#include "common/json/words.hpp"
#include "worker/plugin/load_plugins.hpp"
#include "worker/plugin/registered_names.hpp"
#include "worker/standalone/standalone_agent.hpp"

namespace sgd::worker {
namespace {

namespace fs = std::filesystem;

struct Words {
  std::string file;
  std::string run_dir;
  std::string resume_from;
  job::Overrides overrides;
};

Status take_set(const std::string& text, job::Overrides& overrides) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return Error{"--set needs PATH=VALUE, got " + json::quote(text)};
  overrides.sets.push_back({text.substr(0, equals), text.substr(equals + 1), "--set " + text.substr(0, equals)});
  return {};
}

Result<Words> parse(const std::vector<std::string>& arguments) {
  Words words;
  // It is one rank, however many the job has.
  for (const char* key : {"num_workers", "min_workers"}) words.overrides.sets.push_back({key, "1", "--config"});
  for (std::size_t at = 0; at < arguments.size(); ++at) {
    const std::string& word = arguments[at];
    const bool takes_value = word == "--set" || word == "--run-dir" || word == "--resume-from";
    if (takes_value && at + 1 == arguments.size()) return Error{word + " needs a value"};
    if (word == "--set") {
      if (const Status taken = take_set(arguments[++at], words.overrides); !taken) return taken.error();
    } else if (word == "--run-dir") {
      words.run_dir = arguments[++at];
    } else if (word == "--resume-from") {
      words.resume_from = arguments[++at];
    } else if (word.starts_with("-") || !words.file.empty()) {
      return Error{"--config takes a job file, --set, --run-dir and --resume-from, not " + json::quote(word)};
    } else {
      words.file = word;
    }
  }
  if (words.file.empty()) return Error{"--config needs a job file"};
  return words;
}

int refuse(const std::string& message) {
  std::fprintf(stderr, "sgd-worker: %s\n", message.c_str());
  return worker_exit::kConfiguration;
}

/// The job, checked with what its plug-ins register. Nothing: it is said why.
std::optional<job::JobSpec> load(const Words& words) {
  job::LoadResult loaded = job::load_job_file(words.file, words.overrides);
  // What this program itself has registered; with plug-ins it is joined with theirs.
  if (has_registered() && !(loaded.job && !loaded.job->plugins.empty()))
    loaded = job::load_job_file(words.file, words.overrides, registered_properties());
  if (loaded.job && !loaded.job->plugins.empty()) {
    if (const Status plugins = load_plugins(loaded.job->plugins); !plugins)
      loaded.diagnostics.error(words.file, 0, 0, plugins.error().message);
    else
      loaded = job::load_job_file(words.file, words.overrides, registered_properties());
  }
  if (loaded.job && !loaded.job->training)
    loaded.diagnostics.error(words.file, 0, 0, "names a command, which needs no worker: run it by itself");
  if (loaded.job && loaded.job->training) job::check_data(*loaded.job, words.file, loaded.diagnostics);
  for (const Diagnostic& item : loaded.diagnostics.items) std::fprintf(stderr, "%s\n", item.text().c_str());
  if (loaded.diagnostics.has_errors()) return std::nullopt;
  return std::move(loaded.job);
}

/// A new folder: what lies in an old one is another run's. It is closed to others, whatever the umask is.
Result<std::string> make_run_dir(const Words& words, const std::string& name) {
  std::error_code error;
  std::string folder = words.run_dir;
  for (int number = 1; folder.empty(); ++number) {
    std::string candidate = fmt::format("runs/{}-alone-{}", name, number);
    if (!fs::exists(candidate, error)) folder = std::move(candidate);
  }
  if (fs::exists(folder, error) && !fs::is_empty(folder, error))
    return Error{folder + " is not empty: give another --run-dir, or --resume-from a checkpoint in it"};
  fs::create_directories(folder, error);
  std::error_code ignored;  // One that is another account's stays as it is.
  if (!error) fs::permissions(folder, fs::perms::owner_all, ignored);
  for (const char* part : {"checkpoints", "errors"})
    if (!error) fs::create_directories(fs::path(folder) / part, error);
  if (error) return Error{fmt::format("cannot create {}: {}", folder, error.message())};
  return fs::absolute(folder).string();
}

/// The checkpoint that the rank goes on from, by the words or else by the job; empty: it begins anew.
Result<std::string> find_checkpoint(const Words& words, const job::JobSpec& job) {
  const bool is_of_job = words.resume_from.empty();
  const std::string& from = is_of_job ? job.resume_from : words.resume_from;
  if (from.empty()) return std::string();
  std::error_code error;
  if (!fs::exists(fs::path(from) / "manifest.json", error))
    return Error{fmt::format("{}{} is no checkpoint: a folder as checkpoints/step-000000001200-gen-0001 is one",
                             is_of_job ? "\"resume_from\": " : "", from)};
  return fs::absolute(from).string();
}

/// What the job asks of a launcher, and nobody does here; empty: nothing.
std::string unfollowed_keys(const job::JobSpec& job) {
  std::vector<const char*> keys;
  if (job.checkpoint.best) keys.push_back("\"checkpoint.keep.best\"");
  if (job.checkpoint.after_save) keys.push_back("\"checkpoint.after_save\"");
  if (!job.callbacks.empty()) keys.push_back("\"callbacks\"");
  return fmt::format("{}", fmt::join(keys, ", "));
}

}  // namespace

int run_config_command(const std::vector<std::string>& arguments, const std::function<int()>& run_rank) {
  const Result<Words> words = parse(arguments);
  if (!words) return refuse(words.error().message);
  const std::optional<job::JobSpec> job = load(words.value());
  if (!job) return worker_exit::kConfiguration;
  const Result<std::string> checkpoint = find_checkpoint(words.value(), *job);
  if (!checkpoint) return refuse(checkpoint.error().message);
  const Result<std::string> run_dir = make_run_dir(words.value(), job->name);
  if (!run_dir) return refuse(run_dir.error().message);
  StandaloneAgent::Setup setup;
  setup.grace = job->stop.grace;
  setup.checkpoints_kept = job->checkpoint.keep;
  setup.assignment.run = "alone";
  setup.assignment.generation = 1;
  setup.assignment.run_dir = run_dir.value();
  setup.assignment.cpus = job->per_worker.cpus;
  setup.assignment.config = job->resolved;
  if (!checkpoint.value().empty()) setup.assignment.resume_from = {checkpoint.value()};
  auto agent = StandaloneAgent::start(std::move(setup));
  if (!agent) return refuse(agent.error().message);
  ::setenv("SGD_LINK", agent.value()->path().c_str(), 1);
  ::setenv("SGD_TOKEN", "alone", 1);
  std::fprintf(stderr, "sgd-worker: one rank of %s, files in %s\n", words.value().file.c_str(),
               run_dir.value().c_str());
  if (const std::string keys = unfollowed_keys(*job); !keys.empty())
    std::fprintf(stderr, "sgd-worker: --config does not follow %s: run the job with sgd-launch for that\n",
                 keys.c_str());
  return run_rank();
}

}  // namespace sgd::worker
