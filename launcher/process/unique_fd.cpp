#include "launcher/process/unique_fd.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace sgd::process {

void UniqueFd::reset(int fd) {
  // close() is not repeated after EINTR: Linux has released the number by then.
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

bool set_nonblocking(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  return flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

}  // namespace sgd::process
