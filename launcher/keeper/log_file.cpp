#include "launcher/keeper/log_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "launcher/process/own_path.hpp"

namespace sgd::keeper {

namespace {

constexpr std::size_t kCopyBytes = 256 << 10;

bool write_whole(int fd, std::string_view& bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

/// All that is in `from`, which may have no name any more.
Status copy_all(int from, int to) {
  const process::UniqueFd source(::open(("/proc/self/fd/" + std::to_string(from)).c_str(), O_RDONLY | O_CLOEXEC));
  if (!source) return system_error("it cannot be read");
  std::string buffer(kCopyBytes, '\0');
  for (;;) {
    const ssize_t count = ::read(source.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("it cannot be read");
    if (count == 0) return {};
    std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
    if (!write_whole(to, bytes)) return system_error("it cannot be copied");
  }
}

}  // namespace

std::int64_t count_lines(std::string_view bytes) {
  return std::count(bytes.begin(), bytes.end(), '\n');
}

Result<LogFile> LogFile::open(const std::string& path) {
  LogFile log;
  if (path.empty()) return log;
  log.path_ = path;
  const auto place = process::OwnPath::find(path, process::OwnPath::Folders::kAreMade);
  if (!place) return Error{fmt::format("cannot open log file {}: {}", path, place.error().message), place.error().code};
  // A rank may have put a pipe there, which nobody reads: it must not hold the keeper.
  log.file_ = place.value().open(O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK, 0644);
  if (!log.file_) return system_error("cannot open log file " + path);
  struct stat status {};
  if (::fstat(log.file_.get(), &status) != 0) return system_error("cannot open log file " + path);
  if (S_ISFIFO(status.st_mode)) return Error{"log file " + path + " is a pipe"};
  log.is_looked_at_ = S_ISREG(status.st_mode);
  log.size_ = status.st_size;
  log.device_ = status.st_dev;
  log.inode_ = status.st_ino;
  return log;
}

void LogFile::write(std::string_view bytes) {
  if (!file_) return;
  const std::size_t all = bytes.size();
  const bool refused = is_given_up_ || !write_whole(file_.get(), bytes);
  size_ += static_cast<std::int64_t>(all - bytes.size());
  if (refused && !refuses_ && !is_given_up_) error_ = "log file " + path_ + ": " + std::strerror(errno);
  has_news_ |= refused != refuses_;
  refuses_ = refused;
  if (!refused) return;
  lines_ += count_lines(bytes);
  bytes_ += static_cast<std::int64_t>(bytes.size());
}

void LogFile::look(TimePoint now) {
  if (!is_looked_at_ || is_given_up_ || now < look_at_) return;
  look_at_ = now + kLookInterval;
  note_cut();
  if (is_in_place()) return away_since_.reset();
  if (!away_since_) away_since_ = now;
  if (now - *away_since_ >= kRestoreAfter) try_to_restore();
}

void LogFile::look_last() {
  if (!is_looked_at_) return;
  note_cut();
  while (!is_given_up_ && !is_in_place()) try_to_restore();
}

/// What cannot be looked at is where it was, as far as anybody knows.
bool LogFile::is_in_place() const {
  struct stat there {};
  if (::stat(path_.c_str(), &there) != 0) return errno != ENOENT && errno != ENOTDIR;
  return there.st_dev == device_ && there.st_ino == inode_;
}

void LogFile::note_cut() {
  struct stat status {};
  if (::fstat(file_.get(), &status) != 0 || status.st_size >= size_) return;
  lose(size_ - status.st_size, "log file " + path_ + " was cut short while its worker ran");
  size_ = status.st_size;
}

void LogFile::try_to_restore() {
  const Status restored = restore();
  ++restores_;
  if (restored) return away_since_.reset();
  if (restores_ < kRestoresMax && size_ <= kRestoredBytesMax) return;
  is_given_up_ = true;
  lose(size_, "log file " + path_ + " was removed or replaced while its worker ran: " + restored.error().message);
}

/// Its descriptor is all that is left of it.
Status LogFile::restore() {
  if (restores_ >= kRestoresMax) return Error{"again and again"};
  if (size_ > kRestoredBytesMax) return Error{"it was too long to be copied"};
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  std::error_code error;
  // Who has removed the whole run does not want it back.
  if (!std::filesystem::exists(folder.parent_path().parent_path(), error)) return Error{"its folder is gone, too"};
  // An agent reads behind no link.
  for (const std::filesystem::path& part : {folder, folder.parent_path()})
    if (std::filesystem::is_symlink(part, error)) return Error{"a link is in the place of " + part.string()};
  std::filesystem::create_directories(folder, error);
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  process::UniqueFd copy(::open(path_.c_str(), kFlags, 0644));
  if (!copy) return system_error("it cannot be made again");
  struct stat status {};
  Status copied = copy_all(file_.get(), copy.get());
  if (copied && ::fstat(copy.get(), &status) != 0) copied = system_error("it cannot be looked at");
  if (!copied) {
    (void)::unlink(path_.c_str());  // Ignoring: half of it may stay.
    return copied;
  }
  file_ = std::move(copy);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  return {};
}

void LogFile::lose(std::int64_t bytes, std::string why) {
  bytes_ += bytes;
  error_ = std::move(why);
  has_news_ = true;
}

std::optional<OutputDropped> LogFile::take_news(Rank rank) {
  return std::exchange(has_news_, false) ? take_dropped(rank) : std::nullopt;
}

std::optional<OutputDropped> LogFile::take_dropped(Rank rank) {
  if (bytes_ == 0) return std::nullopt;
  return OutputDropped{rank, std::exchange(lines_, 0), std::exchange(bytes_, 0), error_};
}

}  // namespace sgd::keeper
