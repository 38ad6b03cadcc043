#include "launcher/cli/start_checks.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "common/job/load.hpp"
#include "common/job/read_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/cli/plugin_types.hpp"
#include "launcher/cli/program_files.hpp"
#include "launcher/core/experiment.hpp"
#include "launcher/process/capture_output.hpp"
#include "launcher/process/library_folders.hpp"
#include "launcher/process/node_resources.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/process/system_calls.hpp"
#include "launcher/process/unique_fd.hpp"
#include "launcher/shipping/found_files.hpp"

namespace sgd::cli {
namespace {

constexpr Duration kLibraryPatience = std::chrono::seconds(120);  // Gigabytes may come from a cold disk.

void check_worker_program(const job::JobSpec& job, Diagnostics& diagnostics) {
  if (!job.training) return;
  const std::string path = job.worker.empty() ? worker_program() : job.worker;
  if (::access(path.c_str(), X_OK) == 0) {
    const char* elsewhere = std::getenv("LD_LIBRARY_PATH");
    if (elsewhere != nullptr && *elsewhere != '\0') return;
    if (const Status found = process::check_library_folders(path); !found)
      diagnostics.error("sgd-launch", 0, 0,
                        found.error().message +
                            ": build with -DSGD_TORCH_DIR=DIR where all may read (scripts/setup by root uses "
                            "/var/cache), link LibTorch's folder (ln -s DIR /usr/lib/sgd-launch/torch) where a package "
                            "is installed, or name its lib folder in LD_LIBRARY_PATH");
    return;
  }
  if (!job.worker.empty())
    return diagnostics.error("worker", 0, 0,
                             process::explain_exec_failure(path, errno).message + job::did_you_mean_file(path));
  diagnostics.error(
      "sgd-launch", 0, 0,
      fmt::format("{} is missing: build with LibTorch (scripts/setup, scripts/run), or name it in SGD_WORKER", path));
}

void check_command(const job::JobSpec& job, Diagnostics& diagnostics) {
  if (!job.command.empty()) check_program("command", job.command.front(), diagnostics);
  if (job.checkpoint.after_save)
    check_program("checkpoint.after_save", job.checkpoint.after_save->command.front(), diagnostics);
  for (std::size_t i = 0; i < job.callbacks.size(); ++i) {
    const nlohmann::json& command = member(job.callbacks[i], "command");
    if (command.is_array() && !command.empty())
      check_program(fmt::format("callbacks[{}].command", i), command.front().get_ref<const std::string&>(),
                    diagnostics);
  }
}

/// Whether the worker finds LibTorch's CUDA part: it knows best where it looks.
void check_gpu_library(const job::JobSpec& job, Diagnostics& diagnostics) {
  const auto said =
      process::capture_output({job.worker.empty() ? worker_program() : job.worker, "--check-gpu"}, kLibraryPatience);
  if (!said) return diagnostics.error("training.device", 0, 0, said.error().message);
  if (said.value().exit_code == 0 && said.value().signal == 0 && !said.value().is_late) return;
  constexpr std::string_view kName = "sgd-worker: ";
  std::string_view words = said.value().text;
  if (const std::size_t at = words.rfind(kName); at != std::string_view::npos) words.remove_prefix(at + kName.size());
  diagnostics.error("training.device", 0, 0,
                    words.empty() ? std::string("the worker program ended before it could load LibTorch's CUDA part")
                                  : std::string(words));
}

/// Open files of a launcher, its keeper or a worker by themselves, and for each worker in the keeper, which has most.
constexpr std::uint64_t kFilesOfAProcess = 64;
constexpr std::uint64_t kFilesOfAWorker = 4;
/// LibTorch's libraries and the stacks and arenas of its threads take address space before there is any model.
constexpr std::uint64_t kAddressBytesOfAWorker = 1ULL << 30;

}  // namespace

void check_program(const std::string& key, const std::string& program, Diagnostics& diagnostics) {
  const char* search_path = std::getenv("PATH");
  const auto found = process::find_program(program, search_path == nullptr ? "" : search_path);
  if (!found) return diagnostics.error(key, 0, 0, found.error().message);
  if (::access(found.value().c_str(), X_OK) != 0)
    diagnostics.error(
        key, 0, 0, process::explain_exec_failure(found.value(), errno).message + job::did_you_mean_file(found.value()));
}

namespace {

/// A job with plug-ins is read twice, also from standard input: what a pipe gives once is kept in memory.
Status make_input_seekable() {
  if (::lseek(STDIN_FILENO, 0, SEEK_CUR) >= 0) return {};
  const Result<std::string> text = job::read_file("-", job::kJobFileBytesMax);
  if (!text) return text.error();
  const process::UniqueFd kept(::memfd_create("job", MFD_CLOEXEC));
  const auto size = static_cast<ssize_t>(text.value().size());
  if (kept.get() < 0 || ::write(kept.get(), text.value().data(), text.value().size()) != size ||
      ::lseek(kept.get(), 0, SEEK_SET) != 0 || ::dup2(kept.get(), STDIN_FILENO) < 0)
    return system_error("cannot keep it in memory");
  return {};
}

}  // namespace

job::LoadResult load_named_job(const RunOptions& options, Diagnostics found) {
  job::LoadResult loaded;
  const bool is_input = options.job_file == "-";
  if (is_input)
    if (const Status kept = make_input_seekable(); !kept) {
      found.error("<stdin>", 0, 0, kept.error().message);
      loaded.diagnostics = std::move(found);
      return loaded;
    }
  const off_t begin = is_input ? ::lseek(STDIN_FILENO, 0, SEEK_CUR) : 0;
  if (!options.job_file.empty())
    loaded = load_with_plugins([&](const job::Registered& registered) {
      if (is_input) (void)::lseek(STDIN_FILENO, begin, SEEK_SET);
      return job::load_job_file(options.job_file, options.overrides, registered);
    });
  else if (!options.command.empty())
    loaded = job::load_command_job(options.command, options.overrides);
  found.items.insert(found.items.end(), loaded.diagnostics.items.begin(), loaded.diagnostics.items.end());
  loaded.diagnostics = std::move(found);
  return loaded;
}

void check_limits(const job::JobSpec& job, const process::ResourceLimits& limits, Diagnostics& diagnostics) {
  const std::uint64_t files = kFilesOfAProcess + kFilesOfAWorker * static_cast<std::uint64_t>(job.num_workers);
  if (limits.files && *limits.files < files)
    diagnostics.error("sgd-launch", 0, 0,
                      fmt::format("only {} files may be open (ulimit -n), and {} worker{} here need{} {}: ulimit -n {}",
                                  *limits.files, job.num_workers, job.num_workers == 1 ? "" : "s",
                                  job.num_workers == 1 ? "s" : "", files, std::max<std::uint64_t>(1024, files)));
  if (job.training && limits.address_bytes && *limits.address_bytes < kAddressBytesOfAWorker)
    diagnostics.error("sgd-launch", 0, 0,
                      fmt::format("a process may have only {} MiB of address space (ulimit -v), and a worker needs {} "
                                  "MiB before its model and data: ulimit -v unlimited",
                                  *limits.address_bytes >> 20, kAddressBytesOfAWorker >> 20));
}

void check_gpus(const job::JobSpec& job, std::size_t gpus, const char* visible, Diagnostics& diagnostics) {
  const int each = job.per_worker.gpus;
  const int workers = job.elastic_start ? job.min_workers : job.num_workers;
  if (each <= 0 || gpus >= static_cast<std::size_t>(each) * static_cast<std::size_t>(workers)) return;
  const std::string has = visible != nullptr ? fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" names {}", visible, gpus)
                          : gpus == 0        ? "this machine has none that NVIDIA's driver (libnvidia-ml.so.1) knows of"
                                             : fmt::format("this machine has {}", gpus);
  diagnostics.error("per_worker.gpus", 0, 0,
                    fmt::format("{} worker{} with {} GPU{} each need {}: {}", workers, workers == 1 ? "" : "s", each,
                                each == 1 ? "" : "s", each * workers, has));
}

void refuse_experiment(const job::JobSpec& job, const std::string& source, Diagnostics& diagnostics) {
  if (core::is_experiment(job))
    diagnostics.error(
        source, 0, 0,
        "has a \"tune\", so it has many trials: sgd-launch tune starts them, and continues them with --resume");
}

void warn_of_files_here(const job::JobSpec& job, Diagnostics& diagnostics) {
  if (job.command.empty() || !job.files.empty() || read_or(*job.resolved, "workdir", "") != "") return;
  for (const std::string& word : job.command) {
    std::error_code error;
    if (word.starts_with('/') || !std::filesystem::is_regular_file(word, error)) continue;
    diagnostics.warn("command", 0, 0,
                     fmt::format("{0} is a file of this folder, and the nodes start the command in a folder of their "
                                 "own: bring it there with --set 'files=[\"{0}\"]', or name it by its whole path, if "
                                 "the nodes have it",
                                 word));
  }
}

void check_start(const job::JobSpec& job, const std::string& source, Diagnostics& diagnostics) {
  if (const auto trouble = process::system_trouble())  // Nothing else can be looked at then.
    return diagnostics.error("sgd-launch", 0, 0, fmt::format("{}: {}", trouble->text, trouble->fix));
  refuse_experiment(job, source, diagnostics);
  shipping::check_files(job.files, source, diagnostics);
  job::check_data(job, source, diagnostics);
  job::check_memory_need(job, source, process::memory_bytes(), diagnostics);
  check_worker_program(job, diagnostics);
  check_command(job, diagnostics);
  check_limits(job, process::resource_limits(), diagnostics);
  if (job.per_worker.gpus == 0) return;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  check_gpus(job, process::gpus(visible).size(), visible, diagnostics);
  if (job.training && !diagnostics.has_errors()) check_gpu_library(job, diagnostics);
}

}  // namespace sgd::cli
