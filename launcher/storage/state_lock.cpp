#include "launcher/storage/state_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

#include "launcher/storage/private_folder.hpp"

namespace sgd::storage {
namespace {

std::string owner_of(int fd) {
  char text[32];
  const ssize_t count = ::pread(fd, text, sizeof text, 0);
  const std::string pid(text, count > 0 ? static_cast<std::size_t>(count) : 0);
  const bool is_number = !pid.empty() && pid.find_first_not_of("0123456789\n") == std::string::npos;
  return is_number ? fmt::format("pid {}", pid.substr(0, pid.find('\n'))) : "its pid is not known";
}

}  // namespace

Result<StateLock> StateLock::take(const std::string& folder, const std::string& daemon) {
  if (const Status made = make_private_folder(folder, Others::kPass); !made) return made.error();
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
  // A full disk: it holds all the same, and whoever comes is told that its pid is not known.
  if (!is_written && errno != ENOSPC && errno != EDQUOT && errno != EFBIG) return system_error("cannot write " + path);
  return lock;
}

StateLock::~StateLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace sgd::storage
