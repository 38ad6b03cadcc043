#include "launcher/storage/run_lookup.hpp"

#include <algorithm>
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

/// Of a folder that is there, but no run's; empty: there is none.
std::string why_no_run(const std::string& name) {
  std::error_code error;
  if (!fs::is_directory(name, error)) return {};
  (void)fs::exists(fs::path(name) / "events.jsonl", error);
  return error ? "cannot look into this folder: " + error.message() : "this folder has no events.jsonl";
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
    return Error{fmt::format(
        "no run in {}: name one by its folder, or the coordinator of a cluster with --address HOST:PORT or SGD_ADDRESS",
        runs.string())};
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
  if (ids.empty()) return Error{fmt::format("no run \"{}\": no such folder, and {} has no runs", name, runs.string())};
  return Error{fmt::format("no run \"{}\" in {}; there is {}", name, runs.string(), list(ids))};
}

}  // namespace sgd::storage
