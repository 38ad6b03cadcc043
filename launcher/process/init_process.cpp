#include "launcher/process/init_process.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <initializer_list>

namespace sgd::process {
namespace {

constexpr int kFirstProcess = 1;
constexpr int kKilledBy = 128;  ///< A shell's exit code of a program that a signal has ended is this and its number.

/// A fault of our own cannot wait until it is asked for.
sigset_t all_but_faults() {
  sigset_t signals;
  sigfillset(&signals);
  for (const int fault : {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&signals, fault);
  return signals;
}

/// Ctrl-C and the like reach the whole group of a terminal, the child too. Of a terminal that is gone the first
/// process of the session hears alone.
bool has_reached_child(const siginfo_t& info) {
  return info.si_code == SI_KERNEL && info.si_signo != SIGHUP;
}

/// All that have ended. Does not return when the child is among them.
void collect_ended(pid_t child) {
  int status = 0;
  while (const pid_t ended = ::waitpid(-1, &status, WNOHANG)) {
    if (ended < 0) return;
    if (ended == child) ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : kKilledBy + WTERMSIG(status));
  }
}

[[noreturn]] void be_init(pid_t child, const sigset_t& signals) {
  for (;;) {
    siginfo_t info{};
    const int signal = ::sigwaitinfo(&signals, &info);
    if (signal > 0 && signal != SIGCHLD && !has_reached_child(info))
      (void)::kill(child, signal);  // Ignoring: it may have ended, which is seen below.
    collect_ended(child);
  }
}

}  // namespace

void work_below_init() {
  if (::getpid() != kFirstProcess) return;
  const sigset_t signals = all_but_faults();
  sigset_t before;
  if (::sigprocmask(SIG_SETMASK, &signals, &before) != 0) return;
  const pid_t child = ::fork();
  if (child > 0) be_init(child, signals);
  (void)::sigprocmask(SIG_SETMASK, &before, nullptr);  // Ignoring: it has been set above.
}

}  // namespace sgd::process
