#include "launcher/cli/plugin_types.hpp"

#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "common/job/cross_checks.hpp"
#include "launcher/cli/program_files.hpp"
#include "launcher/process/capture_output.hpp"

namespace sgd::cli {
namespace {

constexpr Duration kWorkerPatience =
    std::chrono::seconds(60);  // LibTorch comes from a cold disk, and what plug-ins need, too.

Result<process::CapturedOutput> run_to_its_end(std::vector<std::string> argv) {
  auto said = process::capture_output(std::move(argv), kWorkerPatience);
  if (!said) return said.error();
  if (said.value().is_late)
    return Error{fmt::format("the worker program says nothing of them within {}", format_duration(kWorkerPatience))};
  if (said.value().signal != 0)
    return Error{fmt::format("the worker program ended by signal {} while it loaded them", said.value().signal)};
  return said;
}

/// The last line: what a library prints while it is loaded comes before it.
std::string last_line(const std::string& text) {
  const std::size_t end = text.rfind('\n');
  return end == std::string::npos ? text : text.substr(end + 1);
}

Result<job::Registered> ask_worker(const std::string& worker, const std::vector<std::string>& plugins) {
  std::vector<std::string> argv = {worker, "--schema"};
  argv.insert(argv.end(), plugins.begin(), plugins.end());
  const Result<process::CapturedOutput> said = run_to_its_end(std::move(argv));
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
  const job::SourceLocation location =
      job::find_location(loaded.given.source_map, loaded.source, loaded.job->plugins.empty() ? "worker" : "plugins");
  loaded.diagnostics.error(location.source, location.value.line, location.value.column, registered.error().message);
  loaded.job.reset();
  return loaded;
}

}  // namespace sgd::cli
