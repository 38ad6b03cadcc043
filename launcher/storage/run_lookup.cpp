#include "launcher/storage/run_lookup.hpp"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

namespace sgd::storage {
namespace fs = std::filesystem;
namespace {

bool is_run(const fs::path& directory) {
  std::error_code error;
  return fs::exists(directory / "events.jsonl", error);
}

/// A whole id: no other run of the folder is looked at.
bool has_run(const fs::path& runs, const std::string& id) {
  std::error_code error;
  const bool is_name = id.find('/') == std::string::npos && id != "." && id != "..";
  return is_name && !fs::is_symlink(runs / id, error) && is_run(runs / id);
}

std::vector<std::string> run_ids(const fs::path& runs, const std::string& prefix) {
  std::vector<std::string> ids;
  std::error_code error;
  fs::directory_iterator entry(runs, error);
  for (std::error_code ignored; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string id = entry->path().filename().string();
    if (id.starts_with(prefix) && !entry->is_symlink(ignored) && is_run(entry->path())) ids.push_back(std::move(id));
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

/// Why `folder` cannot be listed: the first one on the way that does not let us through. Empty: it can, or is none.
std::string barrier(const fs::path& folder) {
  std::error_code error;
  const fs::path whole = fs::absolute(folder, error).lexically_normal();
  fs::path at;
  for (const fs::path& part : whole) {
    at /= part;
    struct stat info {};
    if (::stat(at.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return {};
    if (::access(at.c_str(), at == whole ? R_OK | X_OK : X_OK) == 0 || errno != EACCES) continue;
    const passwd* owner = ::getpwuid(info.st_uid);
    return fmt::format("cannot look into {}: {} (it belongs to {})", at.string(),
                       std::generic_category().message(EACCES),
                       owner != nullptr ? owner->pw_name : std::to_string(info.st_uid));
  }
  return {};
}

/// Of a folder that is there, but no run's, or that cannot be looked into; empty: there is none.
std::string why_no_run(const std::string& name) {
  if (name.find('/') != std::string::npos)
    if (std::string why = barrier(name); !why.empty()) return why;
  std::error_code error;
  if (!fs::is_directory(name, error)) return {};
  (void)fs::exists(fs::path(name) / "events.jsonl", error);
  return error ? "cannot look into this folder: " + error.message() : "this folder has no events.jsonl";
}

/// What stands in the place of runs/ where that is not; empty: nothing.
std::string what_is_here(const fs::path& here) {
  if (is_run(here)) return "; this folder is a run itself: sgd-launch status .";
  if (is_run(here / "latest")) return "; this folder has runs itself: sgd-launch status latest";
  return {};
}

std::string list(const std::vector<std::string>& ids) {
  constexpr std::size_t kShown = 5;
  std::string text;
  for (std::size_t index = 0; index < std::min(ids.size(), kShown); ++index)
    text += fmt::format("{}{}", index == 0 ? "" : ", ", ids[index]);
  if (ids.size() > kShown) text += fmt::format(" and {} more", ids.size() - kShown);
  return text;
}

}  // namespace

bool has_runs(const std::string& runs_dir) {
  return !run_ids(runs_dir, "").empty();
}

std::string why_unlisted(const std::string& folder) {
  return barrier(folder);
}

Result<std::string> find_run(const std::string& name, const std::string& runs_dir) {
  const fs::path runs = fs::absolute(runs_dir);
  std::error_code error;
  if (name.empty()) {
    if (is_run(runs / "latest")) return fs::canonical(runs / "latest", error).string();
    if (fs::is_symlink(runs / "latest", error)) {
      const std::vector<std::string> left = run_ids(runs, "");
      return Error{fmt::format("the latest run in {} is gone ({}){}", runs.string(),
                               fs::read_symlink(runs / "latest", error).string(),
                               left.empty() ? "" : "; there is " + list(left))};
    }
    if (const std::string why = barrier(runs); !why.empty()) return Error{why};
    return Error{
        fmt::format("no run in {}: name one by its folder, or the coordinator of a cluster with --address HOST:PORT or "
                    "SGD_ADDRESS{}",
                    runs.string(), what_is_here(runs.parent_path()))};
  }
  if (is_run(name)) return fs::canonical(name, error).string();
  if (name == "latest" && is_run(runs / name)) return fs::canonical(runs / name, error).string();
  if (has_run(runs, name)) return (runs / name).string();
  const std::vector<std::string> matches = run_ids(runs, name);
  if (matches.size() == 1) return (runs / matches.front()).string();
  if (matches.size() > 1) return Error{fmt::format("\"{}\" is not unique: {}", name, list(matches))};
  const std::vector<std::string> ids = run_ids(runs, "");
  if (const std::string why = why_no_run(name); !why.empty())
    return Error{fmt::format("no run \"{}\": {}{}", name, why, ids.empty() ? "" : "; there is " + list(ids))};
  if (const std::string why = ids.empty() ? barrier(runs) : std::string(); !why.empty())
    return Error{fmt::format("no run \"{}\": {}", name, why)};
  if (ids.empty()) return Error{fmt::format("no run \"{}\": no such folder, and {} has no runs", name, runs.string())};
  return Error{fmt::format("no run \"{}\" in {}; there is {}", name, runs.string(), list(ids))};
}

}  // namespace sgd::storage
