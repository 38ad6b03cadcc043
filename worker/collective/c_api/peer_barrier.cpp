#include "worker/collective/c_api/peer_barrier.hpp"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include "worker/collective/c_api/sgd_collective.h"
#include "worker/collective/collective.hpp"
#include "worker/collective/futex_word.hpp"

namespace sgd::worker {
namespace {

// In the epoch word.
constexpr std::uint32_t kAborted = 1;
constexpr std::uint32_t kMismatched = 2;
constexpr std::uint32_t kOneMeeting = 4;
// In the word of arrivals: their number below, the sum of fingerprints above.
constexpr int kArrivalBits = 64 - kFingerprintBits;
constexpr std::uint64_t kArrivals = (std::uint64_t{1} << kArrivalBits) - 1;
static_assert(kPeersMax <= static_cast<int>(kArrivals));
// Between two looks whether a missing rank's process has ended.
constexpr Duration kSleepLongest = std::chrono::milliseconds(10);
// Two ranks may abort at once: for the words of the one that is still writing them.
constexpr Duration kReasonLongest = std::chrono::seconds(1);
constexpr std::size_t kNamedRanks = 16;

// -1 where the process is gone, or the kernel is older than 5.3: then its number alone is asked.
int open_pidfd(std::int32_t pid) {
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
}

bool has_ended(int pidfd, std::int32_t pid) {
  if (pidfd < 0) return ::kill(pid, 0) != 0 && errno == ESRCH;
  struct pollfd look {};
  look.fd = pidfd;
  look.events = POLLIN;
  return ::poll(&look, 1, 0) > 0;
}

// As peer_group packs them into a call.
std::string words_of(const Call& call, bool detailed) {
  constexpr const char* kTypes[] = {"bytes",   "int8",     "int16",   "int32",   "int64",
                                    "float16", "bfloat16", "float32", "float64", "bool"};
  constexpr const char* kReductions[] = {"sum", "average", "product", "min", "max", "and", "or", "xor"};
  static_assert(SGDC_FLOAT16 == 5 && SGDC_BOOL + 1 == std::size(kTypes) && SGDC_BIT_XOR + 1 == std::size(kReductions));
  std::string text = name_of_peer_operation(static_cast<std::uint32_t>(call.operation));
  if (!detailed) return text;
  const std::uint64_t type = call.first & 0xff;
  const std::uint64_t reduction = call.first >> 8 & 0xff;
  return text + " (" + std::to_string(call.second) + " " + kTypes[std::min<std::uint64_t>(type, SGDC_BOOL)] + ", " +
         kReductions[std::min<std::uint64_t>(reduction, SGDC_BIT_XOR)] + ", root " + std::to_string(call.first >> 32) +
         ")";
}

}  // namespace

const char* name_of_peer_operation(std::uint32_t operation) {
  switch (operation) {
    case SGDC_ALL_REDUCE:
      return "all_reduce";
    case SGDC_REDUCE:
      return "reduce";
    case SGDC_BROADCAST:
      return "broadcast";
    case SGDC_ALL_GATHER:
      return "all_gather";
    case SGDC_GATHER:
      return "gather";
    case SGDC_SCATTER:
      return "scatter";
    case SGDC_REDUCE_SCATTER:
      return "reduce_scatter";
    case SGDC_ALL_TO_ALL:
      return "all_to_all";
    case SGDC_BARRIER:
      return "barrier";
    default:
      return "an unknown operation";
  }
}

PeerBarrier::PeerBarrier(PeerRegion& region, int rank, const std::vector<std::int32_t>& pids, bool own_cores)
    : region_(region),
      words_(region.words()),
      rank_(rank),
      pids_(pids),
      spin_(own_cores ? kSpinOwnCore : kSpinSharedCore) {
  for (int other = 0; other < region.size(); ++other)
    pidfds_.push_back(other == rank ? -1 : open_pidfd(pids_[static_cast<std::size_t>(other)]));
}

PeerBarrier::~PeerBarrier() {
  for (const int pidfd : pidfds_)
    if (pidfd >= 0) ::close(pidfd);
}

bool PeerBarrier::arrive(const Call& call) {
  call_ = call;
  arrived_ = clock_now();
  epoch_before_ = words_.epoch.load(std::memory_order_acquire);
  throw_if_ended(epoch_before_);
  PeerLine& line = region_.line(rank_);
  line.call = call;
  line.arrivals.store(line.arrivals.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const std::uint64_t one = 1 + (fingerprint(call) << kArrivalBits);
  const std::uint64_t arrived = words_.arrived.fetch_add(one, std::memory_order_acq_rel) + one;
  const auto size = static_cast<std::uint64_t>(region_.size());
  if ((arrived & kArrivals) != size) return false;
  // Nobody else touches this word until the epoch moves.
  words_.arrived.store(0, std::memory_order_relaxed);
  const std::uint32_t step = kOneMeeting + (arrived == size * one ? 0 : kMismatched);
  // An addition, not a store: it keeps the abort bit. Sequentially consistent against `sleepers`.
  words_.epoch.fetch_add(step, std::memory_order_seq_cst);
  if (words_.sleepers.load(std::memory_order_seq_cst) != 0) futex_wake_all(words_.epoch);
  if (step != kOneMeeting) throw_mismatched();
  return true;
}

bool PeerBarrier::is_released() {
  const std::uint32_t now = words_.epoch.load(std::memory_order_acquire);
  if (now == epoch_before_) return false;
  if ((now & kMismatched) != 0) throw_mismatched();
  // Who came and aborted afterwards does not undo the barrier.
  if (now / kOneMeeting == epoch_before_ / kOneMeeting) throw_if_ended(now);
  return true;
}

bool PeerBarrier::pass(Duration longest) {
  for (int i = 0; i < kPausesPerLook; ++i) {  // The usual case ends here, without reading the clock.
    if (is_released()) return true;
    pause_cpu();
  }
  const TimePoint start = clock_now();
  while (clock_now() - arrived_ < spin_) {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (is_released()) return true;
      pause_cpu();
    }
  }
  while (!is_released()) {
    const TimePoint now = clock_now();
    if (now - arrived_ >= timeout_) throw_timed_out();
    const Duration left = std::min(longest - (now - start), timeout_ - (now - arrived_));
    if (left <= Duration::zero()) return false;
    words_.sleepers.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(words_.epoch, epoch_before_, std::min(left, kSleepLongest));
    words_.sleepers.fetch_sub(1, std::memory_order_relaxed);
    if (!is_released() && clock_now() - now >= kSleepLongest) check_missing_ranks();
  }
  return true;
}

void PeerBarrier::abort(const std::string& reason) noexcept {
  std::uint32_t none = kNoReason;
  if (words_.reason_state.compare_exchange_strong(none, kReasonBegun, std::memory_order_relaxed)) {
    const std::size_t bytes = std::min(reason.size(), sizeof(words_.reason) - 1);
    std::memcpy(words_.reason, reason.data(), bytes);
    words_.reason[bytes] = 0;
    words_.reason_state.store(kReasonWhole, std::memory_order_release);
  }
  words_.epoch.fetch_or(kAborted, std::memory_order_seq_cst);
  futex_wake_all(words_.epoch);
}

void PeerBarrier::throw_if_ended(std::uint32_t epoch) {
  // Who throws for a mismatch may end, and be found missing then: the mismatch is the cause, whichever is seen first.
  if ((epoch & kMismatched) != 0) throw_mismatched();
  if ((epoch & kAborted) != 0) {
    throw CollectiveError(std::string(name_of_peer_operation(static_cast<std::uint32_t>(call_.operation))) +
                          " of rank " + std::to_string(rank_) + " ended: " + reason_of_abort());
  }
}

std::string PeerBarrier::reason_of_abort() const {
  const TimePoint end = clock_now() + kReasonLongest;
  while (words_.reason_state.load(std::memory_order_acquire) != kReasonWhole) {
    if (clock_now() >= end) return "a rank has aborted the group, and has not said why";
    ::sched_yield();
  }
  return std::string(words_.reason, ::strnlen(words_.reason, sizeof(words_.reason)));
}

void PeerBarrier::throw_mismatched() {
  std::string text;
  const Call first = region_.line(0).call;
  bool detailed = true;
  for (int rank = 0; rank < region_.size(); ++rank)
    detailed = detailed && region_.line(rank).call.operation == first.operation;
  for (int rank = 0; rank < std::min(region_.size(), static_cast<int>(kNamedRanks)); ++rank)
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank) + " to " +
            words_of(region_.line(rank).call, detailed);
  throw CollectiveMismatch("the ranks came to different collectives: " + text +
                           ". Every rank of a group must call the same, in the same order");
}

bool PeerBarrier::is_missing(int rank) {
  // Arrivals differ by one at most, and go round: who has not come to this barrier has not my number.
  return region_.line(rank).arrivals.load(std::memory_order_relaxed) !=
         region_.line(rank_).arrivals.load(std::memory_order_relaxed);
}

void PeerBarrier::throw_timed_out() {
  std::string missing;
  std::size_t named = 0;
  for (int other = 0; other < region_.size(); ++other) {
    if (!is_missing(other) || ++named > kNamedRanks) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(other) + " (process " +
               std::to_string(pids_[static_cast<std::size_t>(other)]) + ")";
  }
  if (named > kNamedRanks) missing += " and " + std::to_string(named - kNamedRanks) + " more";
  const std::string text = std::string(name_of_peer_operation(static_cast<std::uint32_t>(call_.operation))) +
                           " of rank " + std::to_string(rank_) + " waited " +
                           std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count()) +
                           " ms for rank " + missing;
  abort(text);
  throw CollectiveError(text);
}

void PeerBarrier::check_missing_ranks() {
  for (int other = 0; other < region_.size(); ++other) {
    if (other == rank_ || !is_missing(other)) continue;
    const auto index = static_cast<std::size_t>(other);
    const bool left = region_.line(other).left.load(std::memory_order_acquire) != 0;
    if (!left && !has_ended(pidfds_[index], pids_[index])) continue;
    if (is_released()) return;  // It came, and then ended.
    abort("rank " + std::to_string(other) + " (process " + std::to_string(pids_[index]) + ") has " +
          (left ? "left the group" : "ended"));
    return;
  }
}

}  // namespace sgd::worker
