#include "launcher/net/private_files.hpp"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

namespace sgd::net {
namespace fs = std::filesystem;
namespace {

struct Descriptor {
  explicit Descriptor(int number) : fd(number) {}
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int fd;
};

Status write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("cannot write " + path);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

Status sync_folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  const Descriptor directory(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.fd < 0 || ::fsync(directory.fd) != 0) return system_error("cannot sync the folder of " + path);
  return {};
}

}  // namespace

Status make_private_folder(const std::string& path) {
  std::string made;
  // What root's folders are in is for others to pass, as /var/lib/sgd-launch is.
  const mode_t above = ::geteuid() == 0 ? 0755 : 0700;
  for (const fs::path& part : fs::path(path)) {
    made = (fs::path(made) / part).string();
    if (::mkdir(made.c_str(), fs::path(made) == fs::path(path) ? 0700 : above) != 0 && errno != EEXIST)
      return system_error("cannot create " + made);
  }
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) return system_error("cannot look at " + path);
  if (!S_ISDIR(facts.st_mode)) return Error{path + " is not a folder"};
  if (facts.st_uid != ::geteuid())
    return Error{fmt::format("{} belongs to another account, whose uid is {}", path, facts.st_uid)};
  if ((facts.st_mode & 0022) != 0) return Error{path + " can be written to by others: chmod 700 it"};
  return {};
}

Status act_as_owner_of(const std::string& folder) {
  struct stat facts {};
  if (::geteuid() != 0 || ::lstat(folder.c_str(), &facts) != 0 || facts.st_uid == 0) return {};
  if (::setgroups(0, nullptr) != 0 || ::setegid(facts.st_gid) != 0 || ::seteuid(facts.st_uid) != 0)
    return system_error("cannot act as the owner of " + folder);
  return {};
}

Status act_as_ourselves() {
  if (::seteuid(::getuid()) != 0 || ::setegid(::getgid()) != 0) return system_error("cannot act as ourselves again");
  return {};
}

Status write_file(const std::string& path, std::string_view bytes, Readers readers) {
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  (void)::unlink(temporary.c_str());  // Of a process of this number that was cut off.
  const mode_t mode = readers == Readers::kOwner ? 0600 : 0644;
  {
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    if (file.fd < 0) return system_error("cannot create " + temporary);
    Status written = write_all(file.fd, bytes, temporary);
    if (written && ::fsync(file.fd) != 0) written = system_error("cannot sync " + temporary);
    if (!written) {
      (void)::unlink(temporary.c_str());
      return written;
    }
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) return system_error("cannot rename to " + path);
  return sync_folder_of(path);
}

Result<std::string> read_file(const std::string& path, std::size_t bytes_max, Readers readers) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (file.fd < 0) return system_error("cannot open " + path);
  struct stat facts {};
  if (::fstat(file.fd, &facts) != 0) return system_error("cannot look at " + path);
  if (!S_ISREG(facts.st_mode)) return Error{path + " is not a plain file"};
  if (readers == Readers::kOwner && (facts.st_mode & 0077) != 0)
    return Error{
        fmt::format("{} can be read by others (mode {:o}): chmod 600 it, and make a new one if others had access", path,
                    facts.st_mode & 0777)};
  if (facts.st_size > static_cast<off_t>(bytes_max))
    return Error{fmt::format("{} has more than {} bytes", path, bytes_max)};
  std::string bytes(static_cast<std::size_t>(facts.st_size) + 1, '\0');
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t count = ::read(file.fd, bytes.data() + size, bytes.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("cannot read " + path);
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  if (size == bytes.size()) return Error{path + " grew while it was read"};
  bytes.resize(size);
  return bytes;
}

FileStamp stamp_of(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return {};
  return {static_cast<std::int64_t>(facts.st_ctim.tv_sec) * 1'000'000'000 + facts.st_ctim.tv_nsec, facts.st_ino,
          facts.st_size};
}

Result<FolderLock> FolderLock::take(const std::string& folder, int wait_ms) {
  constexpr int kStepMs = 5;  // A lock of a file has no descriptor that we could wait for.
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return system_error("cannot open " + folder);
  FolderLock lock(fd);
  for (int waited_ms = 0; ::flock(fd, LOCK_EX | LOCK_NB) != 0; waited_ms += kStepMs) {
    if (errno != EWOULDBLOCK && errno != EINTR) return system_error("cannot lock " + folder);
    if (waited_ms >= wait_ms) return Error{folder + " is in use by another sgd-launch", EWOULDBLOCK};
    (void)::poll(nullptr, 0, kStepMs);
  }
  return lock;
}

FolderLock::FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace sgd::net
