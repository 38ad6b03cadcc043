#include "worker/collective/shm_barrier.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "worker/collective/collective.hpp"
#include "worker/collective/futex_word.hpp"

namespace sgd::worker {
namespace {

// In the epoch word.
constexpr std::uint32_t kAborted = 1;
constexpr std::uint32_t kMismatched = 2;
constexpr std::uint32_t kOneBarrier = 4;
// In the word of arrivals: their number below, the sum of fingerprints above.
constexpr int kArrivalBits = 64 - kFingerprintBits;
constexpr std::uint64_t kArrivals = (std::uint64_t{1} << kArrivalBits) - 1;
static_assert(kLocalRanksMax <= static_cast<int>(kArrivals));

}  // namespace

ShmBarrier::ShmBarrier(ShmRegion& region, int rank, int size, Waiting waiting, Duration stall_timeout)
    : region_(region),
      words_(region.barrier()),
      rank_(rank),
      size_(static_cast<std::uint32_t>(size)),
      spin_(waiting == Waiting::kSpin ? kSpinOwnCore : kSpinSharedCore),
      stall_timeout_(stall_timeout) {}

std::uint32_t ShmBarrier::wait(std::uint32_t control, const Call& call) {
  const std::uint32_t before = words_.epoch.load(std::memory_order_acquire);
  if ((before & (kAborted | kMismatched)) != 0 || aborted_.load(std::memory_order_relaxed))
    throw_aborted(call.operation);
  std::atomic<std::uint32_t>& result = words_.result[(before / kOneBarrier) & 1];
  RankLine& line = region_.line(rank_);
  line.call = call;
  line.arrivals.store(line.arrivals.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (control != 0) words_.control.fetch_or(control, std::memory_order_relaxed);
  const std::uint64_t one = 1 + (fingerprint(call) << kArrivalBits);
  const std::uint64_t arrived = words_.arrived.fetch_add(one, std::memory_order_acq_rel) + one;
  if ((arrived & kArrivals) == size_) {
    // Nobody else touches these words until the epoch moves.
    result.store(words_.control.load(std::memory_order_relaxed), std::memory_order_relaxed);
    words_.control.store(0, std::memory_order_relaxed);
    words_.arrived.store(0, std::memory_order_relaxed);
    const std::uint32_t step = kOneBarrier + (arrived == size_ * one ? 0 : kMismatched);
    // An addition, not a store: it keeps the abort bit. Sequentially consistent against `sleepers`.
    const std::uint32_t old = words_.epoch.fetch_add(step, std::memory_order_seq_cst);
    if (words_.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(words_.epoch);
    throw_if_ended(old + step, call.operation);
  } else {
    wait_for_release(before, call.operation);
  }
  return result.load(std::memory_order_relaxed);
}

void ShmBarrier::wait_for_release(std::uint32_t epoch_before, Operation operation) {
  // The bits of a changed word say whether it changed by an abort, and whether all came for the same.
  const auto released = [&] {
    const std::uint32_t now = words_.epoch.load(std::memory_order_acquire);
    if (now == epoch_before) return false;
    throw_if_ended(now, operation);
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

void ShmBarrier::throw_if_ended(std::uint32_t epoch, Operation operation) {
  // Who throws for a mismatch ends, and then the others are aborted: it is the cause, whichever is seen first.
  if ((epoch & kMismatched) != 0) throw_mismatched();
  if ((epoch & kAborted) != 0) throw_aborted(operation);
}

void ShmBarrier::throw_mismatched() {
  const auto name = [this](std::size_t rank) { return rank < names_.size() ? names_[rank] : static_cast<int>(rank); };
  std::vector<Caller> callers;
  for (int other = 0; other < static_cast<int>(size_); ++other) {
    const RankLine& line = region_.line(other);
    if (line.call.operation == Operation::kTell) {
      const std::span<const std::byte> text = region_.staging(other);
      const std::size_t bytes = std::min<std::size_t>(line.message_bytes, text.size());
      throw CollectiveMismatch(std::string(reinterpret_cast<const char*>(text.data()), bytes));
    }
    Call call = line.call;
    if (call.operation == Operation::kBroadcast) call.first = static_cast<std::uint64_t>(name(call.first));
    callers.push_back({call, {name(static_cast<std::size_t>(other))}});
  }
  throw CollectiveMismatch(mismatch_text(callers));
}

void ShmBarrier::throw_aborted(Operation operation) const {
  throw CollectiveError(fmt::format("{} of local rank {} aborted", name_of(operation), rank_));
}

void ShmBarrier::throw_stalled(Operation operation) {
  throw CollectiveError(fmt::format("{} of local rank {} waited {:g} s for local rank {}", name_of(operation), rank_,
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
