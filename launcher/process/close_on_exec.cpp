#include "launcher/process/close_on_exec.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <system_error>

namespace sgd::process {
namespace {

constexpr std::size_t kNamesBytes = 2048;  ///< On the stack: nothing may be allocated between fork and exec.

void close_one_on_exec(const char* name, int first) {
  int fd = -1;
  const auto parsed = std::from_chars(name, name + std::strlen(name), fd);
  if (parsed.ec == std::errc() && fd >= first) (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);  // Fails for none that is open.
}

}  // namespace

bool close_on_exec_from(int first) {
  if (::close_range(static_cast<unsigned>(first), ~0U, CLOSE_RANGE_CLOEXEC) == 0) return true;
  const int folder = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  alignas(dirent64) std::array<char, kNamesBytes> names;
  ssize_t bytes = 0;
  while ((bytes = ::getdents64(folder, names.data(), names.size())) > 0) {
    for (ssize_t at = 0; at < bytes;) {
      const auto* entry = reinterpret_cast<const dirent64*>(names.data() + at);
      close_one_on_exec(entry->d_name, first);
      at += entry->d_reclen;
    }
  }
  ::close(folder);
  return bytes == 0;
}

}  // namespace sgd::process
