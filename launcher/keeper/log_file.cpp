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

namespace sgd::keeper {

std::int64_t count_lines(std::string_view bytes) {
  return std::count(bytes.begin(), bytes.end(), '\n');
}

Result<LogFile> LogFile::open(const std::string& path) {
  LogFile log;
  if (path.empty()) return log;
  log.path_ = path;
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  // A rank may have put a pipe there, which nobody reads: it must not hold the keeper.
  log.file_.reset(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
  if (!log.file_) return system_error("cannot open log file " + path);
  struct stat status {};
  if (::fstat(log.file_.get(), &status) != 0) return system_error("cannot open log file " + path);
  if (S_ISFIFO(status.st_mode)) return Error{"log file " + path + " is a pipe"};
  return log;
}

void LogFile::write(std::string_view bytes) {
  if (!file_) return;
  while (!bytes.empty()) {
    const ssize_t written = ::write(file_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  const bool refused = !bytes.empty();
  if (refused && !refuses_) error_ = "log file " + path_ + ": " + std::strerror(errno);
  has_news_ |= refused != refuses_;
  refuses_ = refused;
  if (!refused) return;
  lines_ += count_lines(bytes);
  bytes_ += static_cast<std::int64_t>(bytes.size());
}

std::optional<OutputDropped> LogFile::take_news(Rank rank) {
  return std::exchange(has_news_, false) ? take_dropped(rank) : std::nullopt;
}

std::optional<OutputDropped> LogFile::take_dropped(Rank rank) {
  if (bytes_ == 0) return std::nullopt;
  return OutputDropped{rank, std::exchange(lines_, 0), std::exchange(bytes_, 0), error_};
}

}  // namespace sgd::keeper
