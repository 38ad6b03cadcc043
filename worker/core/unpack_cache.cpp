#include "worker/core/unpack_cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fmt/format.h>

#include "worker/core/write_all.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

// Makes `path` and its parents. True when it then is a directory in which this user may create files.
bool usable_directory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return ::access(path.c_str(), W_OK | X_OK) == 0;
}

// A directory in a place that everybody can write to must be ours alone, or another user could plant data.
bool private_directory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return false;
  return S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() && (info.st_mode & 077) == 0;
}

Result<std::string> cache_directory() {
  const char* xdg = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  std::vector<std::string> candidates;
  if (xdg != nullptr && xdg[0] == '/') candidates.push_back(std::string(xdg) + "/sgd-launch/data");
  if (home != nullptr && home[0] == '/') candidates.push_back(std::string(home) + "/.cache/sgd-launch/data");
  for (const std::string& candidate : candidates) {
    if (usable_directory(candidate)) return candidate;
  }
  const std::string own = fmt::format("/tmp/sgd-launch-{}", ::geteuid());
  if (private_directory(own) && usable_directory(own + "/data")) return own + "/data";
  return Error{fmt::format("no directory for unpacked data: {} is not a private directory of this user; "
                           "set XDG_CACHE_HOME to a directory that can be written",
                           own),
               0};
}

// A file under a temporary name, removed unless it was given its final one.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target) : path_(target + ".XXXXXX") {
    fd_ = ::mkostemp(path_.data(), O_CLOEXEC);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (fd_ < 0) return;
    ::close(fd_);
    if (!kept_) ::unlink(path_.c_str());
  }

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  Status keep_as(const std::string& target) {
    if (::fdatasync(fd_) != 0) return system_error(path_);
    if (::rename(path_.c_str(), target.c_str()) != 0) return system_error(target);
    kept_ = true;
    return {};
  }

 private:
  std::string path_;
  int fd_ = -1;
  bool kept_ = false;
};

Error damaged(const std::string& path, const std::string& what) {
  return Error{path + ": damaged gzip file: " + what, 0};
}

Status unpack(gzFile source, const std::string& path, std::size_t unpacked_bytes, const TemporaryFile& out) {
  std::vector<std::byte> chunk(kChunkBytes);
  std::size_t total = 0;
  for (;;) {
    const int got = ::gzread(source, chunk.data(), static_cast<unsigned>(chunk.size()));
    int code = Z_OK;
    const char* text = ::gzerror(source, &code);
    // A file cut short is read to its end without a negative count; only the code tells.
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      return damaged(path, code == Z_BUF_ERROR ? "it ends too early" : text);
    }
    if (got == 0) break;
    total += static_cast<std::size_t>(got);
    if (total > unpacked_bytes) break;
    Status written = write_all(out.fd(), {chunk.data(), static_cast<std::size_t>(got)}, out.path());
    if (!written) return written;
  }
  if (total == unpacked_bytes) return {};
  return damaged(path, fmt::format("it unpacks to {} bytes where its header says {}",
                                   total > unpacked_bytes ? "more" : std::to_string(total), unpacked_bytes));
}

}  // namespace

Result<std::string> unpacked_file(const std::string& path, std::size_t unpacked_bytes) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return system_error(path);
  Result<std::string> directory = cache_directory();
  if (!directory) return directory;
  const std::filesystem::path source_path(path);
  const std::string target = fmt::format("{}/{}-{}-{}.{:09}-{:016x}", directory.value(), source_path.stem().string(),
                                         info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                                         fnv1a(std::filesystem::absolute(source_path).lexically_normal().string()));
  struct stat cached {};
  if (::stat(target.c_str(), &cached) == 0 && static_cast<std::size_t>(cached.st_size) == unpacked_bytes) {
    return target;
  }
  TemporaryFile out(target);
  if (out.fd() < 0) return system_error(out.path());
  const gzFile source = ::gzopen(path.c_str(), "rbe");
  if (source == nullptr) return system_error(path);
  ::gzbuffer(source, kChunkBytes);
  Status status = unpack(source, path, unpacked_bytes, out);
  ::gzclose_r(source);
  if (status) status = out.keep_as(target);
  if (!status) return status.error();
  return target;
}

}  // namespace sgd::worker
