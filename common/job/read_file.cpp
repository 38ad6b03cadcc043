#include "common/job/read_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

namespace sgd::job {
namespace {

Error too_large(std::size_t bytes_max) {
  return Error{fmt::format("the job file is larger than {} KiB", bytes_max >> 10)};
}

Result<std::string> read_all(int fd, std::size_t bytes_max) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return system_error("cannot read");
  if (S_ISDIR(info.st_mode)) return Error{"is a directory; name a job file", EISDIR};
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
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return system_error("cannot open");
  Result<std::string> text = read_all(fd, bytes_max);
  close(fd);
  return text;
}

}  // namespace sgd::job
