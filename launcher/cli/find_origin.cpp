#include "launcher/cli/find_origin.hpp"

#include <filesystem>

#include <fmt/format.h>

#include "common/job/cross_checks.hpp"
#include "common/json/words.hpp"
#include "launcher/cli/run_place.hpp"
#include "launcher/storage/resume_fit.hpp"

namespace sgd::cli {
namespace {

/// Beside the job file, else among the runs here.
Result<std::string> folder_of(const std::string& name, const std::string& job_folder) {
  if (name.starts_with('/')) return name;
  std::error_code error;
  const std::filesystem::path beside = std::filesystem::path(job_folder) / name;
  if (std::filesystem::exists(beside, error)) return beside.string();
  return find_run(name);
}

}  // namespace

std::optional<storage::RunOrigin> find_origin(job::LoadResult& loaded) {
  if (!loaded.job || loaded.job->resume_from.empty()) return std::nullopt;
  const auto error = [&](const std::string& message) {
    const job::SourceLocation location = job::find_location(loaded.given.source_map, loaded.source, "resume_from");
    loaded.diagnostics.error(location.source, location.value.line, location.value.column,
                             fmt::format("{}: {}", json::quote("resume_from"), message));
    return std::nullopt;
  };
  const auto folder = folder_of(loaded.job->resume_from, loaded.folder);
  if (!folder) return error(folder.error().message);
  auto origin = storage::read_origin(folder.value());
  if (!origin) return error(origin.error().message);
  loaded.job->resume_from = origin.value().checkpoint;
  loaded.job->resolved.edit()["resume_from"] = origin.value().checkpoint;
  const std::string misfit = storage::fit_to_job(*loaded.job, origin.value().history);
  if (!misfit.empty()) return error(misfit);
  return std::move(origin).value();
}

}  // namespace sgd::cli
