#pragma once
// The fork server: loads LibTorch and the job once, then gives birth to ranks that take their
// first step milliseconds later. Messages: common/messages/fork_server.hpp.
//
//   keeper -> Prepare -> warm-up -> Prepared        (one thread, or it must not fork)
//   keeper -> Fork + output pipe -> middle process -> rank; Forked + pidfd -> keeper
//
// A rank is forked twice, so that the keeper becomes its parent. The middle process ends only
// after the server holds the rank's pidfd: until then nobody can have reaped the rank.

namespace sgd::worker {

/// Serves until the keeper closes its end. In a rank it does not return. The result is the process's exit code.
[[nodiscard]] int run_fork_server(int control_fd);

}  // namespace sgd::worker
