#include "launcher/storage/file_owner.hpp"

#include <fcntl.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "launcher/storage/beneath.hpp"

namespace sgd::storage {
namespace {

constexpr uid_t kNobody = 65534;

/// Asked for what cannot be, both calls change nothing and say what there is.
FileOwner current() {
  return {static_cast<uid_t>(::setfsuid(static_cast<uid_t>(-1))),
          static_cast<gid_t>(::setfsgid(static_cast<gid_t>(-1)))};
}

void become(const FileOwner& owner) {
  (void)::setfsgid(owner.gid);
  (void)::setfsuid(owner.uid);
  const FileOwner now = current();
  SGD_ASSERT(now.uid == owner.uid && now.gid == owner.gid);
}

}  // namespace

std::optional<FileOwner> other_owner(const std::string& folder) {
  struct stat info {};
  if (::geteuid() != 0 || ::lstat(folder.c_str(), &info) != 0 || info.st_uid == 0) return std::nullopt;
  return FileOwner{info.st_uid, info.st_gid};
}

bool is_within_reach_of_all(const std::string& folder) {
  const ScopedFileOwner nobody(FileOwner{kNobody, kNobody});
  // Through it, as to what is in it: the folder itself can be looked up where only those above it are open.
  return Descriptor(::open((folder + "/.").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)).get() >= 0;
}

bool open_own_folder(int at, const char* name) {
  const int before = errno;
  const Descriptor folder(::openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  const bool is_closed = folder.get() >= 0 && ::fstat(folder.get(), &info) == 0 && info.st_uid == current().uid &&
                         (info.st_mode & S_IRWXU) != S_IRWXU;
  // A folder that cannot be read has no other descriptor, and fchmod() takes none of this kind. There are file systems
  // that agree to every mode and keep theirs.
  const bool is_opened =
      is_closed &&
      ::chmod(fmt::format("/proc/self/fd/{}", folder.get()).c_str(), (info.st_mode & 07777) | S_IRWXU) == 0 &&
      ::fstat(folder.get(), &info) == 0 && (info.st_mode & S_IRWXU) == S_IRWXU;
  errno = before;
  return is_opened;
}

/// The thread's capabilities that go past the modes of files go with its user id, and come back with it.
ScopedFileOwner::ScopedFileOwner(const std::optional<FileOwner>& owner) {
  if (!owner) return;
  before_ = current();
  become(*owner);
}

ScopedFileOwner::~ScopedFileOwner() {
  if (before_) become(*before_);
}

}  // namespace sgd::storage
