#pragma once
// Exit codes in one place: what sgd-launch returns to its caller, and what sgd-worker
// tells its agent. A code here means the same thing everywhere.

namespace sgd {

namespace exit_code {                    // of sgd-launch
inline constexpr int kSucceeded = 0;     ///< Succeeded.
inline constexpr int kFailed = 1;        ///< Failed: the cause is final, or no restart is allowed.
inline constexpr int kUsage = 2;         ///< Bad usage or job file; nothing was started.
inline constexpr int kUnreachable = 3;   ///< Not running; or the coordinator cannot be reached, or refuses.
inline constexpr int kNotFound = 4;      ///< No such run or node.
inline constexpr int kNotPlaced = 5;     ///< The first start found too few slots.
inline constexpr int kCancelled = 6;     ///< Stopped on request (sgd-launch stop).
inline constexpr int kExhausted = 7;     ///< Restarts, or waits for slots, are used up.
inline constexpr int kTimeout = 124;     ///< --timeout passed.
inline constexpr int kSignalBase = 128;  ///< 130 SIGINT, 143 SIGTERM, 129 SIGHUP.
}  // namespace exit_code

namespace worker_exit {  // of sgd-worker
inline constexpr int kDone = 0;
inline constexpr int kUserError = 1;      ///< Anything from operator, model or data: final.
inline constexpr int kConfiguration = 2;  ///< Bad configuration or plug-in: final.
inline constexpr int kEnvironment = 70;   ///< bad_alloc, I/O error on our own files: retryable.
inline constexpr int kPeerLost = 75;      ///< A Collective failed, or another rank: secondary, never the cause.
inline constexpr int kStopped = 76;       ///< Asked to stop; the checkpoint is saved.
}  // namespace worker_exit

}  // namespace sgd
