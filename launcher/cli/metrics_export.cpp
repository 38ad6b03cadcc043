#include "launcher/cli/metrics_export.hpp"

#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/callbacks/feed.hpp"
#include "launcher/callbacks/run_callbacks.hpp"
#include "launcher/cli/run_fetch.hpp"
#include "launcher/cli/scratch_folder.hpp"

namespace sgd::cli {
namespace {

/// Of a run whose job is not at hand, nothing.
nlohmann::json job_of(const NamedRun& run) {
  if (!run.cluster) return job_in(run.directory);
  const auto answer = ask(run, {{"request", "job"}});
  if (!answer || !answer.value()) return {};
  return nlohmann::json(member(*answer.value(), "job"));
}

}  // namespace

nlohmann::json job_in(const std::string& run_dir) {
  return json::read_file(run_dir + "/job.json");
}

Result<std::string> write_reports(const nlohmann::json& callback, const std::string& run, const std::string& run_dir,
                                  const nlohmann::json& job, std::optional<bool> succeeded) {
  auto sink = callbacks::make_sink(callback, run, run_dir, job);
  std::string place = sink->place();
  callbacks::Feed feed("metrics", std::move(sink), run_dir + "/metrics.jsonl");
  feed.advance(Duration{0}, true);
  if (succeeded) feed.end(*succeeded);
  const auto warnings = feed.take_warnings();
  if (!warnings.empty()) return Error{warnings.front()};
  return place;
}

int export_metrics(const NamedRun& run, const std::string& shape, const std::string& folder) {
  std::optional<ScratchFolder> here;
  std::string source = run.directory;
  if (run.cluster) {
    here.emplace("sgd-metrics");
    source = here->path();
    if (source.empty()) return refuse(exit_code::kFailed, system_error("cannot make a folder for the metrics").message);
    const auto fetched = fetch_files(run, {{"metrics", true}}, source);
    if (!fetched) return refuse(fetched.error().code, fetched.error().message);
  }
  nlohmann::json callback = {{"type", shape}, {"folder", folder}};
  callback["file"] = shape == "csv" ? "progress.csv" : "results.json";
  const std::string id = run.cluster ? run.run : std::filesystem::path(run.directory).filename().string();
  const auto place = write_reports(callback, id.empty() ? "latest" : id, source, job_of(run), std::nullopt);
  if (!place) return refuse(exit_code::kFailed, place.error().message);
  fmt::print("{}\n", place.value());
  return exit_code::kSucceeded;
}

}  // namespace sgd::cli
