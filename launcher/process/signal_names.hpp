#pragma once
// Names and words of signals and exit statuses, from one table, for messages that people
// read: "signal 9 (SIGKILL)", "segmentation fault". Reads nothing from the system.

#include <optional>
#include <string>
#include <string_view>

namespace sgd::process {

/// How a process ended: exactly one of exit_code and signal says it.
struct ExitStatus {
  int exit_code = -1;        ///< -1 when a signal ended it, or when nobody can tell any more.
  int signal = 0;            ///< 0 when it exited by itself.
  bool core_dumped = false;  ///< With a signal.
};

/// "SIGKILL"; empty for a number that names no signal; "SIGRTMIN+3" for real-time signals.
[[nodiscard]] std::string signal_name(int signal);
/// "killed", "segmentation fault"; empty where there is no phrase.
[[nodiscard]] std::string_view signal_words(int signal);
/// The number behind "SIGTERM" or "TERM".
[[nodiscard]] std::optional<int> signal_number(std::string_view name);
/// "exit code 3", "signal 9 (SIGKILL)", "signal 11 (SIGSEGV), core dumped", "exit status unknown".
[[nodiscard]] std::string describe(const ExitStatus& status);

}  // namespace sgd::process
