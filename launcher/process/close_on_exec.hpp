#pragma once
// What a program that is started does not get.

namespace sgd::process {

/// Closes every descriptor from `first` on at the next exec. Async-signal-safe. One system call from Linux 5.11 on;
/// before, and where a container refuses that call, /proc/self/fd is read. False, with errno: neither can be done.
[[nodiscard]] bool close_on_exec_from(int first);

}  // namespace sgd::process
