#include "launcher/storage/latest_run.hpp"

#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>

#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"

namespace sgd::storage {
namespace fs = std::filesystem;
namespace {

bool only_validates(const nlohmann::json& resolved_job) {
  return read_or(member(resolved_job, "training"), "validate_only", false);
}

void point(const fs::path& runs, const fs::path& name) {
  const fs::path temporary = runs / fmt::format(".latest-{}", ::getpid());
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_directory_symlink(name, temporary, error);
  if (!error) fs::rename(temporary, runs / "latest", error);
  if (error) fs::remove(temporary, error);
}

/// Empty: none.
fs::path newest_in(const fs::path& runs) {
  fs::path newest;
  fs::file_time_type newest_time;
  std::error_code error;
  fs::directory_iterator entry(runs, error);
  for (std::error_code ignored; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const fs::path name = entry->path().filename();
    if (entry->is_symlink(ignored) || name.string().starts_with('.')) continue;
    const auto time = fs::last_write_time(entry->path() / "events.jsonl", ignored);
    if (ignored || (!newest.empty() && time <= newest_time)) continue;
    if (only_validates(json::read_file((entry->path() / "job.json").string()))) continue;
    newest = name;
    newest_time = time;
  }
  return newest;
}

}  // namespace

void point_latest(const std::string& directory, const nlohmann::json& resolved_job) {
  const fs::path folder(directory);
  if (folder.parent_path().filename() == "runs" && !only_validates(resolved_job))
    point(folder.parent_path(), folder.filename());
}

void mend_latest(const std::string& runs_dir) {
  const fs::path runs(runs_dir);
  const fs::path latest = runs / "latest";
  std::error_code error;
  if (!fs::is_symlink(latest, error) || fs::exists(latest, error) || error) return;
  const fs::path newest = newest_in(runs);
  if (newest.empty())
    fs::remove(latest, error);
  else
    point(runs, newest);
}

}  // namespace sgd::storage
