#include "launcher/process/own_terminal.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <string>

namespace sgd::process {
namespace {

/// 0: it is no terminal.
unsigned device_of(int fd) {
  unsigned device = 0;
  return ::ioctl(fd, TIOCGDEV, &device) == 0 ? device : 0;
}

}  // namespace

UniqueFd own_end_of_terminal(int fd) {
  const unsigned device = device_of(fd);
  if (device == 0) return {};
  // One that another account has opened, as before `su`, is open to us by its second name alone.
  for (const std::string& name : {"/proc/self/fd/" + std::to_string(fd), std::string("/dev/tty")}) {
    UniqueFd end(::open(name.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (end && device_of(end.get()) == device) return end;
  }
  return {};
}

}  // namespace sgd::process
