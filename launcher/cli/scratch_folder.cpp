#include "launcher/cli/scratch_folder.hpp"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>
#include <vector>

namespace sgd::cli {
namespace {

constexpr int kFoldersTried = 16;

/// A file in each, by which it is known as ours: others may give their folders such names too.
constexpr const char* kMarkName = ".sgd-launch-passing";

/// Of ours, locked; none when a process that lives has it, or it was removed meanwhile.
process::UniqueFd try_lock(const std::string& path) {
  process::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  const bool is_ours = fd && ::fstat(fd.get(), &info) == 0 && info.st_uid == ::geteuid();
  if (!is_ours || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return {};
  if (::fstat(fd.get(), &info) != 0 || info.st_nlink == 0) return {};
  return fd;
}

bool mark(const std::string& path) {
  return static_cast<bool>(
      process::UniqueFd(::open((path + "/" + kMarkName).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)));
}

bool is_marked(const std::string& path) {
  struct stat info {};
  return ::lstat((path + "/" + kMarkName).c_str(), &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == ::geteuid();
}

/// One whose process was killed stays behind. The lock is held meanwhile, so that nobody takes it for a new one.
void remove_dead(const std::filesystem::path& base, const std::string& begin) {
  std::error_code error;
  std::vector<std::string> found;
  for (std::filesystem::directory_iterator at(base, error), end; !error && at != end; at.increment(error))
    if (at->path().filename().string().starts_with(begin)) found.push_back(at->path().string());
  for (const std::string& path : found) {
    if (!is_marked(path)) continue;
    const process::UniqueFd lock = try_lock(path);
    if (lock) std::filesystem::remove_all(path, error);  // Ignoring: the next one tries again.
  }
}

}  // namespace

ScratchFolder::ScratchFolder(const std::string& name) {
  std::error_code error;
  std::filesystem::path base = std::filesystem::temp_directory_path(error);
  if (error) base = "/tmp";
  remove_dead(base, name + "-");
  for (int tried = 0; tried < kFoldersTried && !lock_; ++tried) {
    std::string path = base / (name + "-XXXXXX");
    if (::mkdtemp(path.data()) == nullptr) return;
    lock_ = try_lock(path);
    if (!lock_ || !mark(path)) return;
    path_ = path;
  }
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace sgd::cli
