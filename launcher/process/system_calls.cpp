#include "launcher/process/system_calls.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "launcher/process/pidfd.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::process {
namespace {

SystemTrouble refused_call(const char* call, int code) {
  return {fmt::format("the system call {} is refused here: {}", call, std::strerror(code)),
          "use Linux 5.4 or newer, and in a container a newer runtime or docker run --security-opt seccomp=unconfined"};
}

/// Of ourselves: what is no child cannot be waited for, but the kernel must know the question.
std::optional<SystemTrouble> trouble_with_pidfds() {
  const auto self = pidfd_open(::getpid());
  if (!self) return refused_call("pidfd_open", self.error().code);
  if (const Status sent = pidfd_send_signal(self.value().get(), 0); !sent)
    return refused_call("pidfd_send_signal", sent.error().code);
  if (const auto waited = wait_exit(self.value().get()); !waited && waited.error().code != ECHILD)
    return refused_call("waitid", waited.error().code);
  return std::nullopt;
}

std::optional<SystemTrouble> trouble_with_memory() {
  const UniqueFd memory(::memfd_create("sgd-launch", MFD_CLOEXEC));
  if (memory) return std::nullopt;
  const int code = errno;
  SystemTrouble trouble = refused_call("memfd_create", code);
  if (code == EACCES) trouble.fix = "sudo sysctl vm.memfd_noexec=1";
  return trouble;
}

}  // namespace

std::optional<SystemTrouble> system_trouble() {
  if (::access("/proc/self/stat", R_OK) != 0)
    return SystemTrouble{"/proc is not mounted here", "mount -t proc proc /proc"};
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null)
    return SystemTrouble{fmt::format("/dev/null cannot be opened here: {}", std::strerror(errno)),
                         "mknod -m 666 /dev/null c 1 3"};
  if (auto trouble = trouble_with_pidfds()) return trouble;
  return trouble_with_memory();
}

}  // namespace sgd::process
