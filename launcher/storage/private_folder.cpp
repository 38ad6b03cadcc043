#include "launcher/storage/private_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

namespace sgd::storage {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kPrivate = 0700;

Status make_missing(const fs::path& folder) {
  std::error_code error;
  if (folder.empty() || fs::is_directory(folder, error)) return {};
  if (const Status above = make_missing(folder.parent_path()); !above) return above;
  if (::mkdir(folder.c_str(), kPrivate) != 0 && errno != EEXIST)
    return system_error("cannot create " + folder.string());
  return {};
}

Status close_to_others(int fd, const std::string& folder, Others others) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error("cannot look at " + folder);
  const mode_t kept = kPrivate | (others == Others::kPass ? info.st_mode & 0011 : 0);
  if (info.st_uid != ::geteuid() || (info.st_mode & 0777) == kept) return {};
  if (::fchmod(fd, kept) != 0) return system_error("cannot close " + folder + " to others");
  return {};
}

}  // namespace

Status make_private_folder(const std::string& folder, Others others) {
  if (const Status made = make_missing(folder); !made) return made;
  // By its descriptor, and through no link: what has the name may be exchanged meanwhile.
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return {};
  const Status closed = close_to_others(fd, folder, others);
  ::close(fd);
  return closed;
}

}  // namespace sgd::storage
