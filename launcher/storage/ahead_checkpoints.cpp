#include "launcher/storage/ahead_checkpoints.hpp"

#include <filesystem>

#include <fmt/format.h>

#include "launcher/storage/remove_tree.hpp"
#include "launcher/storage/sync_names.hpp"

namespace sgd::storage {
namespace fs = std::filesystem;

Status put_ahead(const std::string& run_dir, const std::vector<std::string>& paths) {
  if (paths.empty()) return {};
  const fs::path folder = fs::path(run_dir) / checkpoint::kDirectory / kAheadFolder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return Error{fmt::format("cannot create {}: {}", folder.string(), error.message()), error.value()};
  for (const std::string& path : paths) {
    const fs::path from = fs::path(run_dir) / path;
    fs::rename(from, folder / from.filename(), error);
    if (error)
      return Error{fmt::format("cannot move {} to {}: {}", from.string(), folder.string(), error.message()),
                   error.value()};
  }
  return sync_path(folder.string());
}

void remove_passed(const std::string& checkpoints, const checkpoint::DirectoryName& newest) {
  const fs::path folder = fs::path(checkpoints) / kAheadFolder;
  std::vector<std::string> passed;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const auto name = checkpoint::parse_directory_name(entry->path().filename().string());
    if (name && name->generation < newest.generation && name->step <= newest.step)
      passed.push_back(entry->path().string());
  }
  for (const std::string& path : passed) (void)remove_tree(path);  // Ignoring: what cannot be removed stays.
  if (!passed.empty()) fs::remove(folder, error);                  // Fails while there is something in it.
}

std::string run_of_checkpoint(const std::string& checkpoint) {
  const fs::path folder = fs::path(checkpoint).parent_path();
  const bool is_ahead = folder.filename() == kAheadFolder && folder.parent_path().filename() == checkpoint::kDirectory;
  return (is_ahead ? folder.parent_path() : folder).parent_path().string();
}

}  // namespace sgd::storage
