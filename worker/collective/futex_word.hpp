#pragma once
// How ranks wait for a word of shared memory: first in a loop, then asleep in the kernel (futex(2)).

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

#include "common/base/time.hpp"

namespace sgd::worker {

inline constexpr int kPausesPerLook = 64;  ///< Polls between two looks at the clock.
/// Some wake-ups' time: more than a step's imbalance. A rank that is waited for longer has lost its core to other
/// programs.
inline constexpr Duration kSpinOwnCore = std::chrono::microseconds(200);
inline constexpr Duration kSpinSharedCore = std::chrono::microseconds(5);

inline TimePoint clock_now() {
  return std::chrono::steady_clock::now();
}

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Shared between processes, so without FUTEX_PRIVATE_FLAG. Returns for any reason; the caller looks again.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration longest) {
  struct timespec timeout {};
  timeout.tv_sec = static_cast<time_t>(longest.count() / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(longest.count() % 1'000'000'000);
  (void)::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  (void)::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace sgd::worker
