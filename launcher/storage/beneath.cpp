#include "launcher/storage/beneath.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace sgd::storage {
namespace {

constexpr mode_t kFileMode = 0666;
constexpr mode_t kFolderMode = 0777;
constexpr std::size_t kHoleBytes = 4096;      ///< Of zeros that are left out, at such a place.
constexpr std::size_t kRemovedAtOnce = 4096;  ///< Names in memory, however many there are.

int open_at(int folder, const std::string& name, int flags) {
  return ::openat(folder, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, kFileMode);
}

int open_in_one(int folder, const std::string& name, int flags) {
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_NOFOLLOW | O_CLOEXEC);
  how.mode = (flags & O_CREAT) != 0 ? kFileMode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  return static_cast<int>(::syscall(SYS_openat2, folder, name.c_str(), &how, sizeof how));
}

std::pair<std::string, std::string> split(const std::string& name) {
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos) return {name, ""};
  return {name.substr(0, slash), name.substr(slash + 1)};
}

bool is_step(const std::string& part) {
  return !part.empty() && part != "." && part != "..";
}

/// How many bytes at the begin of `bytes`, which are at `offset` of a file, are whole blocks of zeros, or are none.
struct Stretch {
  std::size_t bytes = 0;
  bool is_hole = false;
};

Stretch next_stretch(std::uint64_t offset, std::string_view bytes) {
  Stretch stretch;
  while (stretch.bytes < bytes.size()) {
    const std::uint64_t within = (offset + stretch.bytes) % kHoleBytes;
    const std::string_view block = bytes.substr(stretch.bytes, kHoleBytes - within);
    const bool is_hole = block.size() == kHoleBytes && block.find_first_not_of('\0') == std::string_view::npos;
    if (stretch.bytes == 0) stretch.is_hole = is_hole;
    if (stretch.is_hole != is_hole) break;
    stretch.bytes += block.size();
  }
  return stretch;
}

struct CloseFolder {
  void operator()(DIR* folder) const { (void)::closedir(folder); }
};

}  // namespace

Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) (void)::close(fd_);
}

// ---- files ----

Result<std::uint64_t> OpenFile::size() const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) return system_error("cannot look at " + name_);
  return static_cast<std::uint64_t>(status.st_size);
}

Status OpenFile::write_at(std::uint64_t offset, std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error("cannot write " + name_);
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += static_cast<std::uint64_t>(written);
  }
  return {};
}

Status OpenFile::write_behind(std::uint64_t end, std::string_view bytes) const {
  while (!bytes.empty()) {
    const Stretch stretch = next_stretch(end, bytes);
    const Status done = stretch.is_hole ? truncate(end + stretch.bytes) : write_at(end, bytes.substr(0, stretch.bytes));
    if (!done) return done;
    bytes.remove_prefix(stretch.bytes);
    end += stretch.bytes;
  }
  return {};
}

Result<std::string> OpenFile::read_at(std::uint64_t offset, std::size_t bytes) const {
  std::string text(bytes, '\0');
  std::size_t have = 0;
  while (have < bytes) {
    const ssize_t count = ::pread(fd_.get(), text.data() + have, bytes - have, static_cast<off_t>(offset + have));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("cannot read " + name_);
    if (count == 0) break;
    have += static_cast<std::size_t>(count);
  }
  text.resize(have);
  return text;
}

Status OpenFile::truncate(std::uint64_t bytes) const {
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) return system_error("cannot cut " + name_);
  return {};
}

void OpenFile::start_writing(std::uint64_t offset, std::uint64_t bytes) const {
  (void)::sync_file_range(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

Status OpenFile::sync() const {
  if (::fsync(fd_.get()) != 0) return system_error("cannot sync " + name_);
  return {};
}

// ---- the folder ----

Result<Beneath> Beneath::open(const std::string& folder, Way way) {
  Descriptor root(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (root.get() < 0) return system_error("cannot open " + folder);
  return Beneath(std::move(root), folder, way);
}

Error Beneath::failure(const char* what, const std::string& name) const {
  const int code = errno;
  const char* reason =
      code == ELOOP || code == EXDEV ? "a link is in its place or on the way there" : std::strerror(code);
  return Error{fmt::format("cannot {} {}/{}: {}", what, folder_, name, reason), code};
}

Descriptor Beneath::open_below(const std::string& name, int flags) const {
  if (way_ == Way::kBest) {
    Descriptor fd(open_in_one(root_.get(), name, flags));
    // A sandbox may answer EPERM to a call that it does not know.
    if (fd.get() >= 0 || (errno != ENOSYS && errno != EPERM)) return fd;
  }
  return open_by_steps(name, flags);
}

Descriptor Beneath::open_by_steps(const std::string& name, int flags) const {
  auto [part, rest] = split(name);
  Descriptor folder;
  while (!rest.empty()) {
    if (!is_step(part)) break;
    Descriptor next(open_at(folder.get() < 0 ? root_.get() : folder.get(), part, O_PATH | O_DIRECTORY));
    if (next.get() < 0) {
      if (errno == ENOTDIR) {  // A link is refused as a folder would be that is none.
        struct stat status {};
        const int at = folder.get() < 0 ? root_.get() : folder.get();
        const bool is_link = ::fstatat(at, part.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(status.st_mode);
        errno = is_link ? ELOOP : ENOTDIR;
      }
      return next;
    }
    folder = std::move(next);
    std::tie(part, rest) = split(rest);
  }
  if (!is_step(part)) {
    errno = EXDEV;
    return Descriptor();
  }
  return Descriptor(open_at(folder.get() < 0 ? root_.get() : folder.get(), part, flags));
}

Result<OpenFile> Beneath::regular(Descriptor fd, const std::string& name) const {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return failure("look at", name);
  if (!S_ISREG(status.st_mode)) return Error{fmt::format("{}/{} is no regular file", folder_, name), EINVAL};
  return OpenFile(std::move(fd), folder_ + "/" + name);
}

Result<OpenFile> Beneath::read(const std::string& name) const {
  // O_NONBLOCK: somebody may have put a pipe there, which nobody ever writes.
  Descriptor fd = open_below(name, O_RDONLY | O_NONBLOCK);
  if (fd.get() < 0) return failure("open", name);
  return regular(std::move(fd), name);
}

Result<OpenFile> Beneath::write(const std::string& name) const {
  constexpr int kFlags = O_RDWR | O_CREAT | O_NONBLOCK;
  Descriptor fd = open_below(name, kFlags);
  if (fd.get() < 0 && errno == ENOENT) {
    if (const Status made = make_folders(name); !made) return made.error();
    fd = open_below(name, kFlags);
  }
  if (fd.get() < 0) return failure("create", name);
  return regular(std::move(fd), name);
}

Status Beneath::make_folders(const std::string& name) const {
  for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    const std::string folder = name.substr(0, slash);
    const std::size_t before = folder.rfind('/');
    const std::string parent = before == std::string::npos ? "" : folder.substr(0, before);
    const Descriptor at = parent.empty() ? Descriptor() : open_below(parent, O_PATH | O_DIRECTORY);
    if (!parent.empty() && at.get() < 0) return failure("open", parent);
    const std::string last = before == std::string::npos ? folder : folder.substr(before + 1);
    if (::mkdirat(parent.empty() ? root_.get() : at.get(), last.c_str(), kFolderMode) != 0 && errno != EEXIST)
      return failure("create", folder);
  }
  return {};
}

Result<std::vector<FolderEntry>> Beneath::list(const std::string& folder, std::size_t most) const {
  auto entries = scan(folder, most, false);
  if (entries)
    std::sort(entries.value().begin(), entries.value().end(),
              [](const auto& one, const auto& other) { return one.name < other.name; });
  return entries;
}

Result<std::vector<FolderEntry>> Beneath::scan(const std::string& folder, std::size_t most, bool links_too) const {
  std::vector<FolderEntry> entries;
  Descriptor fd = open_below(folder, O_RDONLY | O_DIRECTORY);
  if (fd.get() < 0 && errno == ENOENT) return entries;
  if (fd.get() < 0) return failure("list", folder);
  const int own = ::fcntl(fd.get(), F_DUPFD_CLOEXEC, 3);
  const std::unique_ptr<DIR, CloseFolder> open(own < 0 ? nullptr : ::fdopendir(own));
  if (!open) return failure("list", folder);
  while (entries.size() < most) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr && errno != 0) return failure("list", folder);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (!is_step(name)) continue;
    struct stat status {};
    if (::fstatat(fd.get(), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;  // It has gone meanwhile.
      return failure("look at", folder + "/" + name);
    }
    if (!links_too && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) continue;
    entries.push_back({name, S_ISDIR(status.st_mode), static_cast<std::uint64_t>(status.st_size)});
  }
  return entries;
}

bool Beneath::exists(const std::string& name) const {
  return open_below(name, O_PATH).get() >= 0;
}

Status Beneath::rename(const std::string& folder, const std::string& from, const std::string& to) const {
  const Descriptor at = open_below(folder, O_PATH | O_DIRECTORY);
  if (at.get() < 0) return failure("open", folder);
  if (::renameat(at.get(), from.c_str(), at.get(), to.c_str()) != 0) return failure("rename", folder + "/" + from);
  return {};
}

Status Beneath::sync_folder(const std::string& folder) const {
  const Descriptor fd = open_below(folder, O_RDONLY | O_DIRECTORY);
  if (fd.get() < 0 || ::fsync(fd.get()) != 0) return failure("sync", folder);
  return {};
}

Status Beneath::remove_folder(const std::string& folder) const {
  const std::size_t slash = folder.rfind('/');
  const Descriptor parent =
      slash == std::string::npos ? Descriptor() : open_below(folder.substr(0, slash), O_PATH | O_DIRECTORY);
  const int at = slash == std::string::npos ? root_.get() : parent.get();
  const Descriptor fd = open_below(folder, O_PATH | O_DIRECTORY);
  if (fd.get() < 0 && errno == ENOENT) return {};
  for (bool has_more = true; has_more;) {
    const auto entries = scan(folder, kRemovedAtOnce, true);
    if (!entries) return entries.error();
    bool has_gone = false;
    for (const FolderEntry& entry : entries.value())
      has_gone |= !entry.is_folder && ::unlinkat(fd.get(), entry.name.c_str(), 0) == 0;
    has_more = has_gone && entries.value().size() == kRemovedAtOnce;
  }
  if (::unlinkat(at, folder.c_str() + (slash == std::string::npos ? 0 : slash + 1), AT_REMOVEDIR) != 0 &&
      errno != ENOENT)
    return failure("remove", folder);
  return {};
}

}  // namespace sgd::storage
