#pragma once
// Small files that must be whole, and that nobody else may read: keys, certificates, tokens. Written under
// another name, synced and renamed, so that a crash leaves the old file or the new one; read only if they are
// what they should be.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.hpp"

namespace sgd::net {

enum class Readers {
  kOwner,    ///< 0600; read only if no one else may.
  kAnybody,  ///< 0644.
};

/// Creates `path` with mode 0700, and what is above it likewise (root: 0755). Errors: not a folder, others may write to
/// it, somebody else's.
[[nodiscard]] Status make_private_folder(const std::string& path);

/// Root that works in the folder of another account does so in that account's name from here on: what it writes is
/// that account's to read, and what the account has put there leads root nowhere. For a verb of one thread.
[[nodiscard]] Status act_as_owner_of(const std::string& folder);
/// And as ourselves again, but for root's groups, of which it needs none.
[[nodiscard]] Status act_as_ourselves();

[[nodiscard]] Status write_file(const std::string& path, std::string_view bytes, Readers readers);

/// Errors: absent (code ENOENT), a link or no plain file, longer than `bytes_max`, readable by others if it
/// must not be.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t bytes_max, Readers readers);

/// Tells one version of a file from another, by what the system notes of it; equal for two absent ones.
struct FileStamp {
  std::int64_t changed_ns = 0;
  std::uint64_t inode = 0;
  std::int64_t bytes = -1;  ///< -1: absent.

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
[[nodiscard]] FileStamp stamp_of(const std::string& path);

/// Holds a folder for one writer among processes, until it goes. A killed process holds nothing.
class FolderLock {
 public:
  /// Waits for at most `wait_ms`. Errors: in use, no such folder.
  [[nodiscard]] static Result<FolderLock> take(const std::string& folder, int wait_ms);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace sgd::net
