#include "launcher/storage/folder_anchor.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include <fmt/format.h>

namespace sgd::storage {

bool can_be_exchanged(const std::string& directory) {
  if (::geteuid() != 0) return false;
  for (std::filesystem::path at = std::filesystem::path(directory).parent_path();; at = at.parent_path()) {
    struct stat info {};
    if (::stat(at.c_str(), &info) != 0) return true;
    const bool others_write = (info.st_mode & 0022) != 0 && (info.st_mode & S_ISVTX) == 0;
    if (info.st_uid != 0 || others_write) return true;
    if (!at.has_relative_path()) return false;
  }
}

Result<std::string> path_by_descriptor(int fd, const std::string& directory) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error("cannot look at " + directory);
  if (info.st_uid != ::geteuid())
    return Error{fmt::format("{} belongs to user {}, and root would write into it: run as that user, or name another "
                             "folder with --run-dir",
                             directory, info.st_uid),
                 EPERM};
  return fmt::format("/proc/{}/fd/{}", ::getpid(), fd);
}

}  // namespace sgd::storage
