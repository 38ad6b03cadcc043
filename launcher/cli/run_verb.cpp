// `sgd-launch [run]`: check everything, create nothing until all is well, then run it here.

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/cli/local_run.hpp"
#include "launcher/cli/program_files.hpp"
#include "launcher/cli/verbs.hpp"
#include "launcher/process/spawn.hpp"

namespace sgd::cli {
namespace {

void check_worker_program(const job::JobSpec& job, Diagnostics& diagnostics) {
  if (!job.training) return;
  const std::string path = worker_program();
  if (::access(path.c_str(), X_OK) == 0) return;
  diagnostics.error("sgd-launch", 0, 0,
                    fmt::format("{} is missing: build with LibTorch (scripts/setup, scripts/run), or name it in SGD_WORKER",
                                path));
}

/// The same search that starting it will do: better now than after a run directory exists.
void check_command(const job::JobSpec& job, Diagnostics& diagnostics) {
  if (job.command.empty()) return;
  const char* search_path = std::getenv("PATH");
  const auto found = process::find_program(job.command.front(), search_path == nullptr ? "" : search_path);
  if (!found) return diagnostics.error("command", 0, 0, found.error().message);
  if (::access(found.value().c_str(), X_OK) != 0)
    diagnostics.error("command", 0, 0, process::explain_exec_failure(found.value(), errno).message);
}

}  // namespace

void print(const Diagnostics& diagnostics) {
  for (const Diagnostic& item : diagnostics.items) fmt::print(stderr, "{}\n", item.text());
}

int run_verb(const std::vector<std::string>& arguments) {
  Diagnostics diagnostics;
  const RunOptions options = parse_run_options(arguments, diagnostics);
  if (options.help) {
    fmt::print("{}", run_help());
    return exit_code::kSucceeded;
  }
  if (diagnostics.has_errors()) {
    print(diagnostics);
    return exit_code::kUsage;
  }
  job::LoadResult loaded = options.job_file.empty() ? job::load_command_job(options.command, options.overrides)
                                                    : job::load_job_file(options.job_file, options.overrides);
  if (loaded.job) {
    job::check_data(*loaded.job, options.job_file, loaded.diagnostics);
    check_worker_program(*loaded.job, loaded.diagnostics);
    check_command(*loaded.job, loaded.diagnostics);
  }
  const auto place = storage::choose_run_place(loaded.job ? loaded.job->name : "run", options.run_dir);
  if (!place) loaded.diagnostics.error("--run-dir", 0, 0, place.error().message);
  print(loaded.diagnostics);
  if (loaded.diagnostics.has_errors()) return exit_code::kUsage;
  return LocalRun(options, std::move(*loaded.job), place.value()).run();
}

}  // namespace sgd::cli
