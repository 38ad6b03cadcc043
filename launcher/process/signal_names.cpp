#include "launcher/process/signal_names.hpp"

#include <csignal>

namespace sgd::process {
namespace {

struct SignalEntry {
  int number;              ///< As the kernel counts on this machine.
  std::string_view name;   ///< With "SIG".
  std::string_view words;  ///< What it means for the process that got it.
};

constexpr SignalEntry kSignals[] = {
    {SIGHUP, "SIGHUP", "terminal closed"},
    {SIGINT, "SIGINT", "interrupted"},
    {SIGQUIT, "SIGQUIT", "quit"},
    {SIGILL, "SIGILL", "illegal instruction"},
    {SIGTRAP, "SIGTRAP", "trace trap"},
    {SIGABRT, "SIGABRT", "aborted"},
    {SIGBUS, "SIGBUS", "bus error"},
    {SIGFPE, "SIGFPE", "arithmetic error"},
    {SIGKILL, "SIGKILL", "killed"},
    {SIGUSR1, "SIGUSR1", "user signal 1"},
    {SIGSEGV, "SIGSEGV", "segmentation fault"},
    {SIGUSR2, "SIGUSR2", "user signal 2"},
    {SIGPIPE, "SIGPIPE", "broken pipe"},
    {SIGALRM, "SIGALRM", "alarm"},
    {SIGTERM, "SIGTERM", "terminated"},
    {SIGSTKFLT, "SIGSTKFLT", "stack fault"},
    {SIGCHLD, "SIGCHLD", "child changed"},
    {SIGCONT, "SIGCONT", "continued"},
    {SIGSTOP, "SIGSTOP", "stopped"},
    {SIGTSTP, "SIGTSTP", "stopped at the terminal"},
    {SIGTTIN, "SIGTTIN", "stopped by terminal input"},
    {SIGTTOU, "SIGTTOU", "stopped by terminal output"},
    {SIGURG, "SIGURG", "urgent data"},
    {SIGXCPU, "SIGXCPU", "CPU time limit"},
    {SIGXFSZ, "SIGXFSZ", "file size limit"},
    {SIGVTALRM, "SIGVTALRM", "virtual alarm"},
    {SIGPROF, "SIGPROF", "profiling alarm"},
    {SIGWINCH, "SIGWINCH", "window size"},
    {SIGIO, "SIGIO", "I/O possible"},
    {SIGPWR, "SIGPWR", "power failure"},
    {SIGSYS, "SIGSYS", "bad system call"},
};

}  // namespace

std::string signal_name(int signal) {
  for (const SignalEntry& entry : kSignals) {
    if (entry.number == signal) return std::string(entry.name);
  }
  if (signal >= SIGRTMIN && signal <= SIGRTMAX) {
    const int offset = signal - SIGRTMIN;
    return offset == 0 ? "SIGRTMIN" : "SIGRTMIN+" + std::to_string(offset);
  }
  return "";
}

std::string_view signal_words(int signal) {
  for (const SignalEntry& entry : kSignals) {
    if (entry.number == signal) return entry.words;
  }
  return "";
}

std::optional<int> signal_number(std::string_view name) {
  for (const SignalEntry& entry : kSignals) {
    if (name == entry.name || name == entry.name.substr(3)) return entry.number;
  }
  return std::nullopt;
}

std::string describe(const ExitStatus& status) {
  if (status.signal == 0) {
    return status.exit_code < 0 ? "exit status unknown" : "exit code " + std::to_string(status.exit_code);
  }
  std::string text = "signal " + std::to_string(status.signal);
  const std::string name = signal_name(status.signal);
  if (!name.empty()) text += " (" + name + ")";
  if (status.core_dumped) text += ", core dumped";
  return text;
}

}  // namespace sgd::process
