#include "launcher/storage/state_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include <fmt/format.h>

namespace sgd::storage {
namespace {

namespace fs = std::filesystem;

Status make_folder(const std::string& folder) {
  std::error_code error;
  if (fs::is_directory(folder, error)) return {};
  const fs::path above = fs::path(folder).parent_path();
  if (!above.empty()) fs::create_directories(above, error);
  if (error) return Error{fmt::format("cannot create {}: {}", above.string(), error.message())};
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return system_error("cannot create " + folder);
  return {};
}

std::string owner_of(int fd) {
  char text[32];
  const ssize_t count = ::pread(fd, text, sizeof text, 0);
  const std::string pid(text, count > 0 ? static_cast<std::size_t>(count) : 0);
  const bool is_number = !pid.empty() && pid.find_first_not_of("0123456789\n") == std::string::npos;
  return is_number ? fmt::format("pid {}", pid.substr(0, pid.find('\n'))) : "its pid is not known";
}

}  // namespace

Result<StateLock> StateLock::take(const std::string& folder, const std::string& daemon) {
  if (const Status made = make_folder(folder); !made) return made.error();
  const std::string path = folder + "/" + daemon + ".lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return system_error("cannot open " + path);
  StateLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return system_error("cannot lock " + path);
    return Error{
        fmt::format("state folder {} is in use by another {} ({}): stop that one first, or name another folder", folder,
                    daemon, owner_of(fd)),
        EWOULDBLOCK};
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  const bool is_written =
      ::ftruncate(fd, 0) == 0 && ::pwrite(fd, pid.data(), pid.size(), 0) == static_cast<ssize_t>(pid.size());
  if (!is_written) return system_error("cannot write " + path);
  return lock;
}

StateLock::~StateLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace sgd::storage
