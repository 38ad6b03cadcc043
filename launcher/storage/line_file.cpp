#include "launcher/storage/line_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <limits>
#include <string_view>
#include <utility>

#include "common/json/nlohmann.hpp"

namespace sgd::storage {
namespace {

/// Past the first `most` whole lines of `file`, which are counted in `lines`; where that is.
off_t skip_lines(std::ifstream& file, std::int64_t most, std::int64_t& lines) {
  std::string block(1 << 20, '\0');
  off_t whole = 0;
  for (off_t begin = 0; lines < most; begin += static_cast<off_t>(file.gcount())) {
    file.read(block.data(), static_cast<std::streamsize>(block.size()));
    const std::string_view bytes(block.data(), static_cast<std::size_t>(file.gcount()));
    for (std::size_t end = bytes.find('\n'); end != bytes.npos && lines < most; end = bytes.find('\n', end + 1)) {
      ++lines;
      whole = begin + static_cast<off_t>(end) + 1;
    }
    if (!file) break;
  }
  if (file.bad()) return whole;
  file.clear();
  file.seekg(whole);
  return whole;
}

}  // namespace

Result<LineFile> LineFile::open(const std::string& path, std::optional<std::int64_t> kept) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return system_error("cannot create " + path);
  LineFile file(path, fd);
  if (Status counted = file.count(kept); !counted) return counted.error();
  return file;
}

LineFile::LineFile(LineFile&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), lines_(other.lines_) {}

LineFile::~LineFile() {
  if (fd_ >= 0) ::close(fd_);
}

/// A coordinator with a thousand live runs starts with this: lines that are not looked into are only counted.
Status LineFile::count(std::optional<std::int64_t> kept) {
  struct stat info {};
  if (::fstat(fd_, &info) != 0) return system_error("cannot look at " + path_);
  if (info.st_size == 0) return {};
  std::ifstream file(path_, std::ios::binary);
  off_t whole = skip_lines(file, kept.value_or(std::numeric_limits<std::int64_t>::max()), lines_);
  for (std::string line; kept && std::getline(file, line) && !file.eof(); ++lines_) {
    if (!line.starts_with('{') || !nlohmann::json::accept(line)) break;
    whole += static_cast<off_t>(line.size()) + 1;
  }
  if (file.bad()) return system_error("cannot read " + path_);
  if (kept && whole != info.st_size && ::ftruncate(fd_, whole) != 0)
    return system_error("cannot cut off the torn end of " + path_);
  return {};
}

Status LineFile::append(const std::string& line) {
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t count = ::write(fd_, line.data() + done, line.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    done += static_cast<std::size_t>(count);
  }
  if (done == line.size()) {
    ++lines_;
    return {};
  }
  const Error error = system_error("cannot write " + path_);
  struct stat info {};
  if (done > 0 && ::fstat(fd_, &info) == 0)
    (void)::ftruncate(fd_,
                      info.st_size - static_cast<off_t>(done));  // Ignoring: a torn line is found by the next reader.
  return error;
}

}  // namespace sgd::storage
