#include "launcher/shipping/file_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <tuple>

#include <fmt/format.h>

#include "common/base/bytes.hpp"
#include "launcher/net/digest.hpp"
#include "launcher/shipping/file_set.hpp"
#include "launcher/storage/beneath.hpp"
#include "launcher/storage/disk_reserve.hpp"
#include "launcher/storage/private_folder.hpp"
#include "launcher/storage/sync_names.hpp"

namespace sgd::shipping {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPieceBytes = 1 << 20;
constexpr mode_t kMode = 0555;  ///< A script among them may be a program; nobody may change what others have, too.
constexpr std::string_view kPart = ".part";

/// A regular file; links are not followed.
Result<storage::OpenFile> open_file(const std::string& path, int flags, mode_t mode = 0) {
  storage::Descriptor fd(::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode));
  struct stat info {};
  if (fd.get() < 0 || ::fstat(fd.get(), &info) != 0) return system_error("cannot open " + path);
  if (!S_ISREG(info.st_mode)) return Error{path + " is no file", EINVAL};
  return storage::OpenFile(std::move(fd), path);
}

Result<std::string> hash_of(const storage::OpenFile& file) {
  net::Sha256 hash;
  const Result<std::uint64_t> size = file.size();
  if (!size) return size.error();
  for (std::uint64_t offset = 0;; offset += kPieceBytes) {
    const Result<std::string> bytes = file.read_at(offset, kPieceBytes);
    if (!bytes) return bytes.error();
    hash.add(bytes.value());
    // What a system makes up while it is read, as below /proc, may have no end.
    if (offset + bytes.value().size() > size.value()) return Error{"it has more bytes than its size says"};
    if (bytes.value().size() < kPieceBytes) return net::to_hex(hash.end());
  }
}

}  // namespace

struct FileStore::Entry {
  std::string path;
  std::uint64_t bytes = 0;
  timespec used{};
  bool is_part = false;
  bool is_linked = false;
};

Result<std::string> sha256_of_file(const std::string& path) {
  const auto file = open_file(path, O_RDONLY);
  return file ? hash_of(file.value()) : Result<std::string>(file.error());
}

std::string sha256_of(std::string_view bytes) {
  net::Sha256 hash;
  hash.add(bytes);
  return net::to_hex(hash.end());
}

Result<std::shared_ptr<FileStore>> FileStore::open(const std::string& folder, const Limits& limits) {
  if (const Status made = storage::make_private_folder(folder); !made) return made.error();
  std::shared_ptr<FileStore> store(new FileStore(folder, limits));
  for (const Entry& entry : store->entries()) {
    store->used_ += entry.bytes;
    ++store->count_;
  }
  return store;
}

std::vector<FileStore::Entry> FileStore::entries_of(const std::string& folder) {
  std::vector<Entry> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    const bool is_part = name.ends_with(kPart);
    if (is_part) name.resize(name.size() - kPart.size());
    struct stat info {};
    if (!is_sha256(name) || ::lstat(entry->path().c_str(), &info) != 0) continue;
    found.push_back(
        {entry->path().string(), static_cast<std::uint64_t>(info.st_size), info.st_mtim, is_part, info.st_nlink > 1});
  }
  return found;
}

std::vector<FileStore::Entry> FileStore::entries() const {
  return entries_of(folder_);
}

std::vector<FileStore::Entry> FileStore::entries_of_siblings() const {
  std::vector<Entry> found;
  const fs::path own(folder_);
  std::error_code error;
  for (fs::directory_iterator one(own.parent_path(), error); !error && one != fs::directory_iterator();
       one.increment(error)) {
    if (one->path().filename() == own.filename()) continue;
    std::vector<Entry> theirs = entries_of(one->path().string());
    std::move(theirs.begin(), theirs.end(), std::back_inserter(found));
  }
  return found;
}

bool FileStore::has(const std::string& sha256, std::int64_t bytes) const {
  struct stat info {};
  const std::string path = path_of(sha256);
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size != bytes) return false;
  (void)::utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);  // Ignoring: it may go sooner then.
  return true;
}

storage::Held FileStore::held(const std::string& sha256) const {
  storage::Held held;
  struct stat info {};
  held.is_stored = ::lstat(path_of(sha256).c_str(), &info) == 0;
  if (held.is_stored || ::lstat(part_of(sha256).c_str(), &info) == 0)
    held.bytes = static_cast<std::uint64_t>(info.st_size);
  return held;
}

storage::Held FileStore::append(const std::string& sha256, std::uint64_t offset, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  storage::Held held = this->held(sha256);
  const std::uint64_t end = offset + bytes.size();
  // Not looked at: whoever says so falsely would have all of it hashed, and loses no more than a file that comes again.
  if (held.is_stored && end > held.bytes) {
    remove(path_of(sha256), held.bytes);
    held = this->held(sha256);
  }
  held.is_gap = !held.is_stored && offset > held.bytes;
  const std::string path = part_of(sha256);
  const bool is_new = ::access(path.c_str(), F_OK) != 0;
  if (held.is_stored || held.is_gap || (end <= held.bytes && !is_new)) return held;
  const std::string_view news = bytes.substr(std::min<std::size_t>(held.bytes - offset, bytes.size()));
  held.error = make_room(news.size(), is_new ? 1 : 0, path);
  held.is_too_much = !held.error.empty();
  if (held.is_too_much) {
    if (!is_new) remove(path, held.bytes);  // It will not be whole: others have its room.
    held.bytes = 0;
    return held;
  }
  const auto file = open_file(path, O_RDWR | O_CREAT, 0600);
  if (file && is_new) ++count_;
  const Status written = file ? file.value().write_at(held.bytes, news) : Status(file.error());
  const std::uint64_t before = held.bytes;
  if (written)
    held.bytes = end;
  else
    held.error = written.error().message;
  if (!written && file) held.bytes = file.value().size().ok() ? file.value().size().value() : before;
  held.added = held.bytes - before;
  used_ += held.added;
  return held;
}

Status FileStore::prove(const std::string& sha256) {
  const std::lock_guard lock(mutex_);
  const bool is_whole = held(sha256).is_stored;
  const std::string path = is_whole ? path_of(sha256) : part_of(sha256);
  const auto file = open_file(path, O_RDONLY);
  if (!file) return file.error();
  const auto hash = hash_of(file.value());
  if (!hash) return hash.error();
  if (hash.value() != sha256) {
    const Result<std::uint64_t> bytes = file.value().size();
    remove(path, bytes ? bytes.value() : 0);
    return Error{fmt::format("bytes that came for the hash {} are those of {}", sha256, hash.value())};
  }
  if (is_whole) return {};
  if (::chmod(path.c_str(), kMode) != 0) return system_error("cannot close " + path);
  if (const Status synced = file.value().sync(); !synced) return synced;
  if (::rename(path.c_str(), path_of(sha256).c_str()) != 0) return system_error("cannot rename " + path);
  return storage::sync_path(folder_);
}

Result<std::string> FileStore::read(const std::string& sha256, std::size_t bytes_max) const {
  const auto file = open_file(path_of(sha256), O_RDONLY);
  if (!file) return file.error();
  auto text = file.value().read_at(0, bytes_max + 1);
  if (text && text.value().size() > bytes_max)
    return Error{fmt::format("{} has more than {} bytes", sha256, bytes_max)};
  return text;
}

Status FileStore::link(const std::string& sha256, const std::string& path) const {
  if (::link(path_of(sha256).c_str(), path.c_str()) == 0) return {};
  if (errno != EXDEV && errno != EMLINK && errno != EPERM)
    return system_error(fmt::format("cannot make {} of {}", path, path_of(sha256)));
  std::error_code error;
  fs::copy_file(path_of(sha256), path, error);
  if (error)
    return Error{fmt::format("cannot copy {} to {}: {}", path_of(sha256), path, error.message()), error.value()};
  return storage::sync_path(path);
}

std::string FileStore::why_no_room(std::uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  std::uint64_t linked = 0;
  for (const Entry& entry : entries())
    if (entry.is_linked) linked += entry.bytes;
  if (bytes <= limits_.bytes && linked <= limits_.bytes - bytes) return {};
  return fmt::format("files of runs that are still here take {} of {}, and {} more do not fit: end or remove some",
                     format_bytes(static_cast<std::int64_t>(linked)),
                     format_bytes(static_cast<std::int64_t>(limits_.bytes)),
                     format_bytes(static_cast<std::int64_t>(std::min<std::uint64_t>(bytes, INT64_MAX))));
}

void FileStore::remove(const std::string& path, std::uint64_t bytes) {
  if (::unlink(path.c_str()) != 0) return;
  used_ -= std::min(used_, bytes);
  --count_;
}

/// What nobody uses, the oldest first, and parts behind what is whole.
std::vector<FileStore::Entry> FileStore::in_order_to_go(std::vector<Entry> entries) {
  struct timespec now {};
  (void)::clock_gettime(CLOCK_REALTIME, &now);
  const auto rest = std::chrono::duration_cast<std::chrono::seconds>(kPartRest).count();
  std::erase_if(entries, [&](const Entry& entry) {
    return entry.is_linked || (entry.is_part && now.tv_sec - entry.used.tv_sec < rest);
  });
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tuple(a.is_part, a.used.tv_sec, a.used.tv_nsec) < std::tuple(b.is_part, b.used.tv_sec, b.used.tv_nsec);
  });
  return entries;
}

/// Empty: so many more are allowed. `path`, to which they come, stays.
std::string FileStore::make_room(std::uint64_t bytes, std::size_t files, const std::string& path) {
  const auto fits = [&] { return used_ + bytes <= limits_.bytes && count_ + files <= limits_.files; };
  const auto is_disk_full = [&] {
    return limits_.keeps_disk_free && storage::bytes_free(folder_) < storage::bytes_kept_free(folder_) + bytes;
  };
  if (fits() && !is_disk_full()) return {};
  const std::vector<Entry> all = entries();
  used_ = 0;  // Of what was cut short or removed by others, less is here than was counted.
  for (const Entry& entry : all) used_ += entry.bytes;
  count_ = all.size();
  for (const Entry& entry : in_order_to_go(all)) {
    if (fits() && !is_disk_full()) break;
    if (entry.path != path) remove(entry.path, entry.bytes);
  }
  if (limits_.has_siblings && fits() && is_disk_full())
    for (const Entry& entry : in_order_to_go(entries_of_siblings())) {
      if (!is_disk_full()) break;
      (void)::unlink(entry.path.c_str());  // Ignoring: its own store may have done it.
    }
  if (!fits())
    return fmt::format("no room for files of jobs: {} files with {} are in use here; at most {} files and {}", count_,
                       format_bytes(static_cast<std::int64_t>(used_)), limits_.files,
                       format_bytes(static_cast<std::int64_t>(limits_.bytes)));
  if (!is_disk_full()) return {};
  return fmt::format("no room for files of jobs: {} are free where {} lies: make room there",
                     format_bytes(static_cast<std::int64_t>(storage::bytes_free(folder_))), folder_);
}

}  // namespace sgd::shipping
