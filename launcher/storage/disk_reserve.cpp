#include "launcher/storage/disk_reserve.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace sgd::storage {
namespace {

constexpr std::uint64_t kKeptFreeMax = 256 << 20;
constexpr std::uint64_t kKeptFreeShare = 50;  ///< One part of so many.

}  // namespace

void DiskReserve::make() {
  const int fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  is_there_ = fd >= 0 && ::posix_fallocate(fd, 0, kBytes) == 0;
  if (fd >= 0) ::close(fd);
  if (!is_there_) give_up();
}

void DiskReserve::give_up() {
  (void)::unlink(path_.c_str());  // Ignoring: there may be none.
  is_there_ = false;
}

std::uint64_t bytes_kept_free(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return 0;
  return std::min<std::uint64_t>(kKeptFreeMax, std::uint64_t{info.f_blocks} * info.f_frsize / kKeptFreeShare);
}

std::uint64_t bytes_free(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return std::numeric_limits<std::uint64_t>::max();
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

std::uint64_t files_free(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0 || info.f_files == 0) return std::numeric_limits<std::uint64_t>::max();
  return info.f_favail;
}

}  // namespace sgd::storage
