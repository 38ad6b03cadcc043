#include "launcher/storage/run_files.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <span>

#include <fmt/format.h>

#include "common/base/bytes.hpp"
#include "common/checkpoint/crc32c.hpp"
#include "common/checkpoint/manifest.hpp"
#include "launcher/storage/checkpoint_pruner.hpp"
#include "launcher/storage/disk_reserve.hpp"

namespace sgd::storage {
namespace {

constexpr std::size_t kReadBytes = 1 << 20;
/// Written data waits for the disk in pieces of this size, so that the sync at the end is short.
constexpr std::uint64_t kWritebackBytes = 8 << 20;

/// Files, where there seem to be too many: a look at all of them takes its time, and others wait for it.
constexpr Duration kMeasureAgain = std::chrono::minutes(1);

std::string name_of(const std::string& checkpoint) {
  return checkpoint.substr(checkpoint.rfind('/') + 1);
}

/// The folder that it is in.
std::string above(const std::string& checkpoint) {
  return checkpoint.substr(0, checkpoint.rfind('/'));
}

/// As its writer on a node names what is not whole, so that the same rules clear it away.
std::string part_of(const std::string& checkpoint) {
  return fmt::format("{}/.{}.part", above(checkpoint), name_of(checkpoint));
}

/// ".step-000000001200-gen-0003.part": the checkpoint that it is to become.
std::optional<checkpoint::DirectoryName> half_received(const std::string& name) {
  constexpr std::string_view kEnd = ".part";
  if (!name.starts_with('.') || !name.ends_with(kEnd)) return std::nullopt;
  return checkpoint::parse_directory_name(std::string_view(name).substr(1, name.size() - 1 - kEnd.size()));
}

Result<std::uint32_t> checksum_of(const OpenFile& file, checkpoint::Checksum checksum) {
  std::uint32_t crc = 0;
  for (std::uint64_t offset = 0;; offset += kReadBytes) {
    const Result<std::string> bytes = file.read_at(offset, kReadBytes);
    if (!bytes) return bytes.error();
    const auto piece = std::as_bytes(std::span(bytes.value()));
    crc = checksum == checkpoint::Checksum::kCrc32c ? checkpoint::crc32c(crc, piece) : checkpoint::crc32(crc, piece);
    if (bytes.value().size() < kReadBytes) return crc;
  }
}

/// The folder's owner has closed it, or put something else in its place: nothing in there travels.
bool is_owners_choice(int code) {
  return code == EACCES || code == EPERM || code == ENOTDIR || code == ELOOP || code == EXDEV;
}

}  // namespace

Result<std::shared_ptr<RunFiles>> RunFiles::open(const std::string& folder, const Quota& quota, Charge charge) {
  const std::optional<FileOwner> owner = other_owner(folder);
  const ScopedFileOwner as(owner);
  Result<Beneath> beneath = Beneath::open(folder);
  if (!beneath) return beneath.error();
  return std::shared_ptr<RunFiles>(new RunFiles(folder, std::move(beneath).value(), owner, quota, std::move(charge)));
}

/// Where the bytes of `file` lie, or will.
std::string RunFiles::place_of(const std::string& file) const {
  const std::string checkpoint = transfer::checkpoint_of(file);
  if (checkpoint.empty() || is_stored(checkpoint)) return file;
  return part_of(checkpoint) + file.substr(checkpoint.size());
}

bool RunFiles::is_stored(const std::string& checkpoint) const {
  const ScopedFileOwner as(owner_);
  return folder_.exists(checkpoint + "/" + checkpoint::kManifestFile);
}

Held RunFiles::held(const std::string& file) const {
  const ScopedFileOwner as(owner_);
  Held held;
  const std::string checkpoint = transfer::checkpoint_of(file);
  held.is_stored = !checkpoint.empty() && is_stored(checkpoint);
  const Result<OpenFile> open = folder_.read(place_of(file));
  if (!open && open.error().code == ENOENT) return held;
  const Result<std::uint64_t> size = open ? open.value().size() : Result<std::uint64_t>(open.error());
  if (size)
    held.bytes = size.value();
  else
    held.error = size.error().message;
  return held;
}

Held RunFiles::append(const std::string& file, std::uint64_t offset, std::string_view bytes) {
  const ScopedFileOwner as(owner_);
  Held held;
  const std::string checkpoint = transfer::checkpoint_of(file);
  held.is_stored = !checkpoint.empty() && is_stored(checkpoint);
  if (held.is_stored) return held;
  if (const Result<OpenFile> known = folder_.read(place_of(file)); !known && known.error().code == ENOENT) {
    held.is_gap = offset > 0;
    if (held.is_gap) return held;
    held.error = over_files();
    held.is_too_much = !held.error.empty();
    if (!held.is_too_much) held.error = why_no_file();
    if (!held.error.empty()) return held;
    ++files_;
  }
  const Result<OpenFile> open = folder_.write(place_of(file));
  const Result<std::uint64_t> size = open ? open.value().size() : Result<std::uint64_t>(open.error());
  if (!size) {
    held.error = size.error().message;
    return held;
  }
  held.bytes = size.value();
  held.is_gap = offset > held.bytes;
  const std::uint64_t end = offset + bytes.size();
  if (held.is_gap || end <= held.bytes) return held;
  const std::string_view news = bytes.substr(held.bytes - offset);
  claim(held, file, end, news.size());
  if (!held.error.empty()) return held;
  // What a job leaves as a hole in a log is one here, too; it costs its owner what it stands for.
  const Status written =
      checkpoint.empty() ? open.value().write_behind(held.bytes, news) : open.value().write_at(held.bytes, news);
  if (!written) held.error = written.error().message;
  const std::uint64_t before = held.bytes;
  held.bytes = written ? end : open.value().size().ok() ? open.value().size().value() : held.bytes;
  held.added = held.bytes - before;
  used_ += held.added;
  if (charge_.room && held.added < news.size())
    charge_.room->add(charge_.folder, -static_cast<std::int64_t>(news.size() - held.added));
  if (!checkpoint.empty() && before / kWritebackBytes != held.bytes / kWritebackBytes)
    open.value().start_writing(before - before % kWritebackBytes, kWritebackBytes);
  return held;
}

/// No error: `bytes` more may come, and `file` may reach to `end`; they are counted. A full disk comes before the
/// owner's room: it is waited for, and what is too much is not.
void RunFiles::claim(Held& held, const std::string& file, std::uint64_t end, std::uint64_t bytes) {
  held.error = over_quota(file, end, bytes);
  held.is_too_much = !held.error.empty();
  if (held.is_too_much) return;
  held.error = why_no_room(bytes);
  if (!held.error.empty() || !charge_.room) return;
  if (!charge_.is_limited) return charge_.room->add(charge_.folder, static_cast<std::int64_t>(bytes));
  held.error = charge_.room->take(charge_.folder, static_cast<std::int64_t>(bytes));
  held.is_too_much = !held.error.empty();
}

/// Empty: there are so many bytes. The node keeps what is not taken, and tries again.
std::string RunFiles::why_no_room(std::uint64_t bytes) const {
  if (!quota_.keeps_disk_free) return {};
  const std::uint64_t kept = bytes_kept_free(path_);
  const std::uint64_t free = bytes_free(path_);
  if (free >= kept && free - kept >= bytes) return {};
  return fmt::format("no room: {} are free where {} lies, and {} of them are the coordinator's own: make room there",
                     format_bytes(static_cast<std::int64_t>(free)), path_,
                     format_bytes(static_cast<std::int64_t>(kept)));
}

std::string RunFiles::over_quota(const std::string& file, std::uint64_t end, std::uint64_t bytes) {
  const bool is_log = transfer::checkpoint_of(file).empty();
  const std::uint64_t most = is_log ? std::min(quota_.file_bytes, quota_.log_bytes) : quota_.file_bytes;
  if (end > most) return fmt::format("{} is larger than {} bytes", file, most);
  if (is_measured_ && used_ + bytes <= quota_.run_bytes) return {};
  measure();
  if (used_ + bytes <= quota_.run_bytes) return {};
  return fmt::format("the run's files take more than {} bytes", quota_.run_bytes);
}

/// Empty: another file may be made.
std::string RunFiles::over_files() {
  const TimePoint now = std::chrono::steady_clock::now();
  const bool may_be_less = files_ >= quota_.run_files && now >= measured_at_.load() + kMeasureAgain;
  if (!is_measured_ || may_be_less) {
    measured_at_ = now;
    measure();
  }
  if (files_ < quota_.run_files) return {};
  return fmt::format("the run has {} files here, and no more may come", files_.load());
}

std::string RunFiles::why_no_file() const {
  if (!quota_.keeps_disk_free) return {};
  const std::uint64_t free = files_free(path_);
  if (free > kFilesKeptFree) return {};
  return fmt::format(
      "no room: only {} more files can be made where {} lies, and {} of them are the coordinator's own: "
      "remove some there",
      free, path_, kFilesKeptFree);
}

/// Also what was removed meanwhile. Where there are more files than may be, how many more does not matter.
void RunFiles::measure() {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  const auto list = [&](const std::string& folder) {
    auto entries = folder_.list(folder, static_cast<std::size_t>(quota_.run_files - std::min(quota_.run_files, count)));
    return entries ? std::move(entries).value() : std::vector<FolderEntry>();
  };
  for (const char* top : {"logs", "errors", checkpoint::kDirectory}) {
    for (const FolderEntry& entry : list(top)) {
      bytes += entry.is_folder ? 0 : entry.bytes;
      count += entry.is_folder ? 0 : 1;
      if (!entry.is_folder) continue;
      for (const FolderEntry& file : list(fmt::format("{}/{}", top, entry.name))) {
        bytes += file.is_folder ? 0 : file.bytes;
        ++count;
      }
    }
  }
  used_ = bytes;
  files_ = count;
  is_measured_ = true;
}

Status RunFiles::sync(const std::string& file) const {
  const ScopedFileOwner as(owner_);
  const Result<OpenFile> open = folder_.read(place_of(file));
  return open ? open.value().sync() : Status(open.error());
}

// ---- checkpoints ----

/// What `part` holds is the checkpoint `name`, whole, and on disk.
Status RunFiles::prove(const std::string& part, const std::string& name) const {
  const Result<OpenFile> file = folder_.read(part + "/" + checkpoint::kManifestFile);
  if (!file) return file.error();
  const Result<std::string> text = file.value().read_at(0, checkpoint::kManifestBytesMax + 1);
  if (!text) return text.error();
  const Result<checkpoint::Manifest> manifest = checkpoint::parse_manifest(text.value());
  if (!manifest) return manifest.error();
  const auto wanted = checkpoint::parse_directory_name(name);
  if (!wanted || manifest.value().step != wanted->step || manifest.value().generation != wanted->generation)
    return Error{"its manifest is that of another checkpoint"};
  if (const Status synced = file.value().sync(); !synced) return synced;
  for (const checkpoint::ManifestFile& listed : manifest.value().files) {
    if (!transfer::is_part(listed.name)) return Error{"its manifest names a file that cannot travel"};
    const Result<OpenFile> open = folder_.read(part + "/" + listed.name);
    if (!open) return open.error();
    const Result<std::uint64_t> size = open.value().size();
    if (!size || size.value() != listed.bytes)
      return Error{
          fmt::format("{} has {} bytes, its manifest says {}", listed.name, size ? size.value() : 0, listed.bytes)};
    const Result<std::uint32_t> crc = checksum_of(open.value(), listed.checksum);
    if (!crc) return crc.error();
    if (crc.value() != listed.crc)
      return Error{fmt::format("{} is damaged: its {} is {:08x}, its manifest says {:08x}", listed.name,
                               name_of(listed.checksum), crc.value(), listed.crc)};
    if (const Status synced = open.value().sync(); !synced) return synced;
  }
  return folder_.sync_folder(part);
}

Status RunFiles::finish(const std::string& checkpoint) {
  const ScopedFileOwner as(owner_);
  if (is_stored(checkpoint)) return {};
  const std::string part = part_of(checkpoint);
  const Status proven = prove(part, name_of(checkpoint));
  if (!proven) {
    (void)folder_.remove_folder(part);  // Ignoring: what stays is found damaged again.
    return Error{fmt::format("{}: {}", checkpoint, proven.error().message), proven.error().code};
  }
  const Status renamed = folder_.rename(above(checkpoint), name_of(part), name_of(checkpoint));
  return renamed ? folder_.sync_folder(above(checkpoint)) : renamed;
}

Result<std::vector<transfer::ListedFile>> RunFiles::listing(const std::string& checkpoint) const {
  const ScopedFileOwner as(owner_);
  if (!is_stored(checkpoint)) return Error{checkpoint + " is not here", ENOENT};
  const auto entries = folder_.list(checkpoint, transfer::kListedFilesMax + 1);
  if (!entries) return entries.error();
  if (entries.value().size() > transfer::kListedFilesMax)
    return Error{fmt::format("more than {} files are listed in {}: put what belongs together into one",
                             transfer::kListedFilesMax, checkpoint),
                 E2BIG};
  std::vector<transfer::ListedFile> files;
  for (const FolderEntry& entry : entries.value())
    if (!entry.is_folder && transfer::is_part(entry.name))
      files.push_back({entry.name, static_cast<std::int64_t>(entry.bytes)});
  std::stable_partition(files.begin(), files.end(),
                        [](const transfer::ListedFile& file) { return file.name != checkpoint::kManifestFile; });
  return files;
}

Result<std::string> RunFiles::read(const std::string& file, std::uint64_t offset, std::size_t bytes) const {
  const ScopedFileOwner as(owner_);
  const Result<OpenFile> open = folder_.read(file);
  return open ? open.value().read_at(offset, bytes) : Result<std::string>(open.error());
}

void RunFiles::prune(const std::vector<std::string>& kept, const std::vector<std::string>& spared) {
  const ScopedFileOwner as(owner_);
  const auto entries = folder_.list(checkpoint::kDirectory, static_cast<std::size_t>(quota_.run_files));
  if (!entries) return;
  std::vector<std::string> names;
  for (const FolderEntry& entry : entries.value())
    if (entry.is_folder) names.push_back(entry.name);
  std::vector<std::string> gone = superseded(names, kept);
  std::optional<checkpoint::DirectoryName> newest;
  for (const std::string& name : kept)
    if (std::find(names.begin(), names.end(), name) != names.end())
      newest = std::max(newest, checkpoint::parse_directory_name(name));
  for (const std::string& name : names) {
    const auto half = half_received(name);
    if (newest && half && *half < *newest) gone.push_back(name);
  }
  for (const std::string& name : gone) {
    const bool is_spared = std::any_of(spared.begin(), spared.end(), [&](const std::string& one) {
      return name == one || name == name_of(part_of(one));
    });
    if (!is_spared) (void)folder_.remove_folder(fmt::format("{}/{}", checkpoint::kDirectory, name));
  }
}

RunFiles::Inventory RunFiles::inventory() const {
  const ScopedFileOwner as(owner_);
  Inventory inventory;
  auto room = static_cast<std::size_t>(quota_.run_files);
  inventory.names_most = room;
  const auto list = [&](const std::string& folder) {
    auto entries = folder_.list(folder, room + 1);
    if (!entries && !is_owners_choice(entries.error().code)) inventory.unread = entries.error().message;
    if (!entries) return std::vector<FolderEntry>();
    inventory.is_cut |= entries.value().size() > room;
    entries.value().resize(std::min(entries.value().size(), room));
    room -= entries.value().size();
    return std::move(entries).value();
  };
  const auto add = [&](const std::string& name, std::uint64_t bytes) {
    if (transfer::check_file(name)) inventory.logs.push_back({name, static_cast<std::int64_t>(bytes)});
  };
  for (const char* top : {"logs", "errors"}) {
    for (const FolderEntry& entry : list(top)) {
      const std::string name = fmt::format("{}/{}", top, entry.name);
      if (!entry.is_folder) {
        add(name, entry.bytes);
        continue;
      }
      for (const FolderEntry& file : list(name))
        if (!file.is_folder) add(name + "/" + file.name, file.bytes);
    }
  }
  for (const FolderEntry& entry : list(checkpoint::kDirectory))
    if (entry.is_folder && checkpoint::parse_directory_name(entry.name)) inventory.checkpoints.push_back(entry.name);
  return inventory;
}

}  // namespace sgd::storage
