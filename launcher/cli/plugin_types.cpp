#include "launcher/cli/plugin_types.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/job/cross_checks.hpp"
#include "launcher/cli/program_files.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/spawn.hpp"

namespace sgd::cli {
namespace {

constexpr int kPatienceMs = 60'000;  // LibTorch comes from a cold disk, and the plug-ins' own libraries with it.
constexpr std::size_t kOutputBytesMax = 4 << 20;

struct Said {
  int exit_code = 0;
  std::string text;  ///< Of stdout and stderr.
};

std::string read_all(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return {};
  std::string text(std::min(static_cast<std::size_t>(info.st_size), kOutputBytesMax), '\0');
  const ssize_t count = ::pread(fd, text.data(), text.size(), 0);
  text.resize(count < 0 ? 0 : static_cast<std::size_t>(count));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

Result<Said> run_to_its_end(std::vector<std::string> argv) {
  const process::UniqueFd output(::memfd_create("plugin-types", MFD_CLOEXEC));
  if (output.get() < 0) return system_error("cannot hold the worker's answer");
  process::SpawnOptions options;
  options.argv = std::move(argv);
  options.output_fd = output.get();
  auto child = process::spawn(options);
  if (!child) return child.error();
  pollfd watched{child.value().pidfd.get(), POLLIN, 0};
  const bool is_late = ::poll(&watched, 1, kPatienceMs) == 0;
  if (is_late) (void)::kill(child.value().pid, SIGKILL);
  ::poll(&watched, 1, kPatienceMs);
  const auto ended = process::wait_exit(child.value().pidfd.get());
  if (is_late) return Error{fmt::format("the worker program says nothing of them within {} s", kPatienceMs / 1000)};
  if (!ended) return ended.error();
  if (!ended.value()) return Error{"the worker program does not end"};
  if (ended.value()->signal != 0)
    return Error{fmt::format("the worker program ended by signal {} while it loaded them", ended.value()->signal)};
  return Said{ended.value()->exit_code, read_all(output.get())};
}

/// The last line: what a library prints while it is loaded comes before it.
std::string last_line(const std::string& text) {
  const std::size_t end = text.rfind('\n');
  return end == std::string::npos ? text : text.substr(end + 1);
}

Result<job::Registered> ask_worker(const std::string& worker, const std::vector<std::string>& plugins) {
  std::vector<std::string> argv = {worker, "--schema"};
  argv.insert(argv.end(), plugins.begin(), plugins.end());
  const Result<Said> said = run_to_its_end(std::move(argv));
  if (!said) return said.error();
  const std::string line = last_line(said.value().text);
  constexpr std::string_view kName = "sgd-worker: ";
  if (said.value().exit_code != 0) return Error{line.starts_with(kName) ? line.substr(kName.size()) : line};
  nlohmann::json registered = nlohmann::json::parse(line, nullptr, false);
  if (!registered.is_object()) return Error{"the worker program's answer about them is no JSON"};
  return registered;
}

}  // namespace

job::LoadResult load_with_plugins(const std::function<job::LoadResult(const job::Registered& registered)>& load) {
  job::LoadResult loaded = load({});
  if (!loaded.job || (loaded.job->plugins.empty() && loaded.job->worker.empty())) return loaded;
  const std::string worker = loaded.job->worker.empty() ? worker_program() : loaded.job->worker;
  if (::access(worker.c_str(), X_OK) != 0) return loaded;
  const Result<job::Registered> registered = ask_worker(worker, loaded.job->plugins);
  if (registered) return load(registered.value());
  const job::Spot spot =
      job::find_spot(loaded.given.place, loaded.source, loaded.job->plugins.empty() ? "worker" : "plugins");
  loaded.diagnostics.error(spot.source, spot.value.line, spot.value.column, registered.error().message);
  loaded.job.reset();
  return loaded;
}

}  // namespace sgd::cli
