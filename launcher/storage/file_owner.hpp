#pragma once
// In whose name files are touched. A daemon that runs as root works in folders of other users: while it does, its
// thread has their rights to files and no others, so no link, no race and no mode that a user has put there leads
// anywhere where that user could not go alone. What is created belongs to that user.

#include <sys/types.h>

#include <optional>
#include <string>

namespace sgd::storage {

struct FileOwner {
  uid_t uid = 0;
  gid_t gid = 0;
};

/// The owner of `folder`, where that is somebody else than this process and this process is root.
[[nodiscard]] std::optional<FileOwner> other_owner(const std::string& folder);

/// Whether every user of this machine can get to `folder`, though perhaps not look into it. This process must be root.
[[nodiscard]] bool is_within_reach_of_all(const std::string& folder);

/// The owner of the folder `name` in `at` (AT_FDCWD: a path) can read, write and pass it from here on, if that is in
/// whose name this thread touches files: programs close folders to themselves, as Go does its module cache, and a job
/// may say `chmod 000 .`. Follows no link. False: it is as it was. errno stays.
bool open_own_folder(int at, const char* name);

/// For this thread, while it lives; may be nested. A thread that is made meanwhile begins with the same. Nothing
/// happens without an owner.
class ScopedFileOwner {
 public:
  explicit ScopedFileOwner(const std::optional<FileOwner>& owner);
  ~ScopedFileOwner();
  ScopedFileOwner(const ScopedFileOwner&) = delete;
  ScopedFileOwner& operator=(const ScopedFileOwner&) = delete;

 private:
  std::optional<FileOwner> before_;
};

}  // namespace sgd::storage
