#include "common/job/read_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "common/json/suggest.hpp"

namespace sgd::job {
namespace {

/// A larger folder is not searched for a name.
constexpr std::size_t kNeighboursMax = 1000;

Error too_large(std::size_t bytes_max) {
  return Error{fmt::format("the job file is larger than {} KiB", bytes_max >> 10)};
}

/// Of what has a name in the file system. A device may never end, and a FIFO without a writer never begins.
Status check_kind(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return system_error("cannot read");
  if (S_ISDIR(info.st_mode)) return Error{"is a directory; name a job file", EISDIR};
  if (S_ISREG(info.st_mode)) return {};
  return Error{fmt::format("is a {}, not a file; to read a job from a pipe: sgd-launch - < FILE",
                           S_ISFIFO(info.st_mode) ? "FIFO" : "device"),
               EINVAL};
}

Result<std::string> read_all(int fd, std::size_t bytes_max) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return system_error("cannot read");
  if (S_ISREG(info.st_mode) && info.st_size > static_cast<off_t>(bytes_max)) return too_large(bytes_max);
  std::string text;
  char buffer[16 << 10];
  while (text.size() <= bytes_max) {
    const ssize_t count = read(fd, buffer, std::min(sizeof buffer, bytes_max + 1 - text.size()));
    if (count == 0) return text;
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error("cannot read");
    text.append(buffer, static_cast<std::size_t>(count));
  }
  return too_large(bytes_max);
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t bytes_max) {
  if (path == "-") return read_all(STDIN_FILENO, bytes_max);
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return system_error("cannot open");
  const Status kind = check_kind(fd);
  Result<std::string> text = kind ? read_all(fd, bytes_max) : Result<std::string>(kind.error());
  close(fd);
  return text;
}

std::string did_you_mean_file(const std::string& path) {
  const std::filesystem::path missing(path);
  const std::string folder = missing.parent_path().string();
  std::error_code error;
  if (std::filesystem::exists(missing, error) || error) return {};
  std::vector<std::string> stems;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error);
  for (std::size_t seen = 0; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    if (++seen > kNeighboursMax) return {};
    std::error_code ignored;  // Of a name that leads nowhere.
    if (entry->path().extension() == missing.extension() && entry->is_regular_file(ignored))
      stems.push_back(entry->path().stem().string());
  }
  std::sort(stems.begin(), stems.end());
  const auto near = json::nearest(missing.stem().string(), stems);
  if (!near) return {};
  return fmt::format("; did you mean {}?", (missing.parent_path() / (*near + missing.extension().string())).string());
}

}  // namespace sgd::job
