#pragma once
// Where the ranks of a C group meet. Coming and waiting are apart, so that who waits can go away and come back, on
// another thread if it likes.
//
//   arrive() ──last──> epoch moves, sleepers are woken ──> passed
//       └───not last──> pass(): spin, then futex sleeps ──> passed | not yet | aborted | mismatched | timed out
//                                        └─ each looks whether a missing rank's process has ended, or has left
//
// The addition that counts a rank adds a fingerprint of its call, too; the last rank compares the sum with as many
// times its own. Who finds a rank missing for good aborts the group, so that all leave with the same words.

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "worker/collective/c_api/peer_region.hpp"

namespace sgd::worker {

class PeerBarrier {
 public:
  /// `pids` are the ranks' processes; `region` must outlive this object.
  PeerBarrier(PeerRegion& region, int rank, const std::vector<std::int32_t>& pids, bool own_cores);
  PeerBarrier(const PeerBarrier&) = delete;
  PeerBarrier& operator=(const PeerBarrier&) = delete;
  ~PeerBarrier();

  void set_timeout(Duration timeout) { timeout_ = timeout; }

  /// Comes to the next barrier; true if it is complete by that. Throws CollectiveError, CollectiveMismatch.
  [[nodiscard]] bool arrive(const Call& call);
  /// True once the barrier that this rank came to is complete; waits at most `longest`. Throws as arrive().
  [[nodiscard]] bool pass(Duration longest);

  /// From any thread of any rank: every rank throws now and for ever.
  void abort(const std::string& reason) noexcept;

 private:
  [[nodiscard]] bool is_released();
  void throw_if_ended(std::uint32_t epoch);
  /// Of the rank that was the first to abort, which may not have written it to its end yet.
  [[nodiscard]] std::string reason_of_abort() const;
  [[noreturn]] void throw_mismatched();
  [[noreturn]] void throw_timed_out();
  [[nodiscard]] bool is_missing(int rank);
  /// Aborts the group if a missing rank will never come.
  void check_missing_ranks();

  PeerRegion& region_;
  PeerBarrierWords& words_;
  int rank_;
  std::vector<std::int32_t> pids_;
  std::vector<int> pidfds_;  // Of every rank, -1 where there is none.
  Duration spin_;
  Duration timeout_ = std::chrono::minutes(30);
  Call call_;
  std::uint32_t epoch_before_ = 0;
  TimePoint arrived_;
};

/// As torch.distributed names it, for example "all_reduce".
[[nodiscard]] const char* name_of_peer_operation(std::uint32_t operation);

}  // namespace sgd::worker
