#include "worker/collective/shm_barrier.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

#include <fmt/format.h>

#include "worker/collective/collective.hpp"

namespace sgd::worker {
namespace {

constexpr std::uint32_t kAborted = 1;  // In the epoch word.
constexpr std::uint32_t kOneBarrier = 2;
constexpr int kPausesPerLook = 64;  // Polls between two looks at the clock.
// Some wake-ups' time: more than a step's imbalance. A rank that is waited for longer has lost its core to other
// programs.
constexpr Duration kSpinOwnCore = std::chrono::microseconds(200);
constexpr Duration kSpinSharedCore = std::chrono::microseconds(5);

TimePoint clock_now() {
  return std::chrono::steady_clock::now();
}

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Shared between processes, so without FUTEX_PRIVATE_FLAG. Returns for any reason; the caller looks again.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, Duration longest) {
  struct timespec timeout {};
  timeout.tv_sec = static_cast<time_t>(longest.count() / 1'000'000'000);
  timeout.tv_nsec = static_cast<long>(longest.count() % 1'000'000'000);
  (void)::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
  (void)::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

ShmBarrier::ShmBarrier(ShmRegion& region, int rank, int size, Waiting waiting, Duration stall_timeout)
    : region_(region),
      words_(region.barrier()),
      rank_(rank),
      size_(static_cast<std::uint32_t>(size)),
      spin_(waiting == Waiting::kSpin ? kSpinOwnCore : kSpinSharedCore),
      stall_timeout_(stall_timeout) {}

std::uint32_t ShmBarrier::wait(std::uint32_t control, const char* operation) {
  const std::uint32_t before = words_.epoch.load(std::memory_order_acquire);
  if ((before & kAborted) != 0 || aborted_.load(std::memory_order_relaxed)) throw_aborted(operation);
  std::atomic<std::uint32_t>& result = words_.result[(before / kOneBarrier) & 1];
  auto& arrivals = region_.line(rank_).arrivals;
  arrivals.store(arrivals.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (control != 0) words_.control.fetch_or(control, std::memory_order_relaxed);
  if (words_.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
    // Nobody else touches these words until the epoch moves.
    result.store(words_.control.load(std::memory_order_relaxed), std::memory_order_relaxed);
    words_.control.store(0, std::memory_order_relaxed);
    words_.arrived.store(0, std::memory_order_relaxed);
    // An addition, not a store: it keeps the abort bit. Sequentially consistent against `sleepers`.
    const std::uint32_t old = words_.epoch.fetch_add(kOneBarrier, std::memory_order_seq_cst);
    if (words_.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(words_.epoch);
    if ((old & kAborted) != 0) throw_aborted(operation);
  } else {
    wait_for_release(before, operation);
  }
  return result.load(std::memory_order_relaxed);
}

void ShmBarrier::wait_for_release(std::uint32_t epoch_before, const char* operation) {
  // Bit 0 of a changed word says whether it changed by an abort.
  const auto released = [&] {
    const std::uint32_t now = words_.epoch.load(std::memory_order_acquire);
    if (now == epoch_before) return false;
    if ((now & kAborted) != 0) throw_aborted(operation);
    return true;
  };
  for (int i = 0; i < kPausesPerLook; ++i) {  // The usual case ends here, without reading the clock.
    if (released()) return;
    pause_cpu();
  }
  const TimePoint start = clock_now();
  for (Duration waited{0}; waited < std::min(spin_, stall_timeout_); waited = clock_now() - start) {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (released()) return;
      pause_cpu();
    }
  }
  while (!released()) {
    const Duration left = stall_timeout_ - (clock_now() - start);
    if (left <= Duration::zero()) throw_stalled(operation);
    words_.sleepers.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(words_.epoch, epoch_before, left);
    words_.sleepers.fetch_sub(1, std::memory_order_seq_cst);
  }
}

void ShmBarrier::abort() noexcept {
  aborted_.store(true);
  words_.epoch.fetch_or(kAborted, std::memory_order_seq_cst);
  futex_wake_all(words_.epoch);
}

void ShmBarrier::throw_aborted(const char* operation) const {
  throw CollectiveError(fmt::format("{} of local rank {} aborted", operation, rank_));
}

void ShmBarrier::throw_stalled(const char* operation) {
  throw CollectiveError(fmt::format("{} of local rank {} waited {:g} s for local rank {}", operation, rank_,
                                    to_seconds(stall_timeout_), missing_ranks()));
}

std::string ShmBarrier::missing_ranks() {
  const std::uint32_t own = region_.line(rank_).arrivals.load(std::memory_order_relaxed);
  std::string missing;
  for (std::uint32_t other = 0; other < size_; ++other) {
    const auto arrivals = region_.line(static_cast<int>(other)).arrivals.load(std::memory_order_relaxed);
    if (arrivals != own) missing += (missing.empty() ? "" : ", ") + std::to_string(other);
  }
  return missing.empty() ? "(none named)" : missing;
}

}  // namespace sgd::worker
