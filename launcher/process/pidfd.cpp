#include "launcher/process/pidfd.hpp"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace sgd::process {

// By number: sys/pidfd.h of glibc 2.36 declares its functions without C linkage.

Result<UniqueFd> pidfd_open(pid_t pid) {
  UniqueFd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));  // Close-on-exec by definition.
  if (!fd) return system_error("cannot watch process " + std::to_string(pid));
  return fd;
}

Status pidfd_send_signal(int pidfd, int signal) {
  if (::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0) return {};
  return system_error("cannot send " + signal_name(signal));
}

Result<std::optional<ExitStatus>> wait_exit(int pidfd) {
  siginfo_t info{};
  int result = 0;
  do {
    result = ::waitid(P_PIDFD, static_cast<id_t>(pidfd), &info, WEXITED | WNOHANG);
  } while (result != 0 && errno == EINTR);
  if (result != 0) return system_error("cannot collect the exit status of a process");
  if (info.si_pid == 0) return std::optional<ExitStatus>();
  ExitStatus status;
  if (info.si_code == CLD_EXITED) {
    status.exit_code = info.si_status;
  } else {
    status.signal = info.si_status;
    status.core_dumped = info.si_code == CLD_DUMPED;
  }
  return std::optional<ExitStatus>(status);
}

pid_t peek_ended_child() {
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return 0;
  return info.si_pid;
}

void reap_child(pid_t pid) {
  siginfo_t info{};
  (void)::waitid(P_PID, static_cast<id_t>(pid), &info,
                 WEXITED | WNOHANG);  // Ignoring: somebody else may have it.
}

}  // namespace sgd::process
