#include "launcher/storage/remove_tree.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "launcher/storage/file_owner.hpp"

namespace sgd::storage {
namespace {

struct CloseOpened {
  void operator()(DIR* folder) const { (void)::closedir(folder); }
};
using Opened = std::unique_ptr<DIR, CloseOpened>;

Opened open_folder(int at, const char* name) {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  int fd = ::openat(at, name, kFlags);
  if (fd < 0 && errno == EACCES && open_own_folder(at, name)) fd = ::openat(at, name, kFlags);
  if (fd < 0) return nullptr;
  Opened folder(::fdopendir(fd));
  if (!folder) (void)::close(fd);
  return folder;
}

bool is_folder(int at, const dirent& entry) {
  if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
  struct stat info {};
  return ::fstatat(at, entry.d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode);
}

/// The next one, without "." and "..".
const dirent* next_in(DIR* folder) {
  const dirent* entry = nullptr;
  do {
    entry = ::readdir(folder);
  } while (entry != nullptr && (std::string_view(entry->d_name) == "." || std::string_view(entry->d_name) == ".."));
  return entry;
}

/// Folders in folders are lifted to the top, so that no more than three are open at any depth.
class TreeRemoval {
 public:
  explicit TreeRemoval(Opened top) : top_(std::move(top)), at_(::dirfd(top_.get())) {}

  /// Until nothing is left, or nothing more can be taken away. Returns errno of what cannot.
  int carry_out() {
    for (;;) {
      has_changed_ = false;
      int trouble = 0;
      ::rewinddir(top_.get());
      while (const dirent* entry = next_in(top_.get())) {
        const int code =
            is_folder(at_, *entry) ? remove_folder(entry->d_name) : note(::unlinkat(at_, entry->d_name, 0));
        if (code != 0) trouble = code;
      }
      if (!has_changed_) return trouble;
    }
  }

 private:
  int note(int result) {
    if (result != 0) return errno == ENOENT ? 0 : errno;
    has_changed_ = true;
    return 0;
  }

  int remove_folder(const char* name) {
    const Opened folder = open_folder(at_, name);
    if (!folder) return errno == ENOENT ? 0 : errno;
    const int from = ::dirfd(folder.get());
    int trouble = 0;
    while (const dirent* entry = next_in(folder.get())) {
      const int code = is_folder(from, *entry) ? lift(from, entry->d_name) : note(::unlinkat(from, entry->d_name, 0));
      if (code != 0) trouble = code;
    }
    // One that could be read, and not written or passed: the next turn finds what is left in it.
    if (trouble == EACCES && open_own_folder(at_, name)) has_changed_ = true;
    const int code = note(::unlinkat(at_, name, AT_REMOVEDIR));
    return trouble != 0 ? trouble : code;
  }

  int lift(int from, const char* name) {
    for (;;) {
      const std::string lifted = fmt::format(".lifted-{}", number_++);
      int code = note(::renameat(from, name, at_, lifted.c_str()));
      // A folder gets another ".." by that, so it must be writable itself.
      if (code == EACCES && open_own_folder(from, name)) code = note(::renameat(from, name, at_, lifted.c_str()));
      if (code != ENOTEMPTY && code != EEXIST && code != ENOTDIR) return code;  // Else the name is taken.
    }
  }

  Opened top_;
  int at_;
  std::uint64_t number_ = 0;
  bool has_changed_ = false;
};

int remove_as_now(const std::string& folder) {
  (void)open_own_folder(AT_FDCWD, folder.c_str());  // Ignoring: what is wrong with it is found here.
  Opened top = open_folder(AT_FDCWD, folder.c_str());
  if (!top && errno == ENOENT) return 0;
  if (!top && errno != ENOTDIR && errno != ELOOP) return errno;
  if (!top) return ::unlink(folder.c_str()) == 0 || errno == ENOENT ? 0 : errno;
  const int trouble = TreeRemoval(std::move(top)).carry_out();
  if (::rmdir(folder.c_str()) == 0 || errno == ENOENT) return 0;
  return trouble != 0 ? trouble : errno;
}

}  // namespace

std::error_code remove_tree(const std::string& folder) {
  if (const auto owner = other_owner(folder)) {
    const ScopedFileOwner as(owner);
    if (remove_as_now(folder) == 0) return {};
  }
  return {remove_as_now(folder), std::generic_category()};
}

}  // namespace sgd::storage
