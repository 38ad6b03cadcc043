#pragma once
// Processes by pidfd: a number that is reused can never be signalled or waited for by
// mistake. A pidfd becomes readable when its process ends; poll it, then wait_exit().
// Does not watch anything itself.

#include <sys/types.h>

#include <optional>

#include "common/base/result.hpp"
#include "launcher/process/signal_names.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::process {

/// Of a process that the caller knows to exist: its own child that it has not reaped, or one it re-checks
/// afterwards.
[[nodiscard]] Result<UniqueFd> pidfd_open(pid_t pid);

[[nodiscard]] Status pidfd_send_signal(int pidfd, int signal);

/// Reaps the child behind `pidfd` when it has ended; nothing while it runs. ECHILD when it is not our child.
[[nodiscard]] Result<std::optional<ExitStatus>> wait_exit(int pidfd);

/// A child that has ended and is not reaped yet, or 0. Leaves it unreaped, so that its owner can collect the
/// status.
[[nodiscard]] pid_t peek_ended_child();

/// Reaps one ended child by number; for children whose status nobody wants.
void reap_child(pid_t pid);

}  // namespace sgd::process
