#pragma once
// A barrier over shared words that also ORs a control word. The last rank to arrive publishes
// the OR and advances the epoch; the others wait for the epoch to change.
//
//   arrive ──not last──> spin ──budget spent──> futex sleep ──> released | aborted | mismatched | timed out
//      └────last───> publish OR, advance epoch, wake sleepers if any
//
// Whether all came for the same costs nothing: the addition that counts a rank adds the fingerprint of
// its call, too, and the last rank compares the sum with as many times its own.
//
// Waiting for ranks that have a core each spins first, since a wake-up costs more than a step's
// imbalance; ranks that share cores sleep soon, since a spinning rank keeps the core from the one
// that is waited for. Who died is the launcher's business: here only abort and time-out end a wait.

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/base/time.hpp"
#include "worker/collective/call.hpp"
#include "worker/collective/shm_region.hpp"

namespace sgd::worker {

enum class Waiting {
  kSpin,   ///< Every rank of this host has a core of its own.
  kSleep,  ///< Ranks share cores.
};

class ShmBarrier {
 public:
  /// `region` must outlive this object.
  ShmBarrier(ShmRegion& region, int rank, int size, Waiting waiting, Duration stall_timeout);

  /// The OR of every rank's `control`. Throws CollectiveError, or CollectiveMismatch when some rank came with another
  /// call.
  std::uint32_t wait(std::uint32_t control, const Call& call);

  /// What the ranks are called in a CollectiveMismatch; without it as they count here.
  void name_ranks(std::vector<int> names) { names_ = std::move(names); }

  /// From any thread: releases every rank of the region, now and for ever.
  void abort() noexcept;

 private:
  void wait_for_release(std::uint32_t epoch_before, Operation operation);
  /// If `epoch` says that this barrier is not to be passed.
  void throw_if_ended(std::uint32_t epoch, Operation operation);
  [[noreturn]] void throw_mismatched();
  [[noreturn]] void throw_aborted(Operation operation) const;
  [[noreturn]] void throw_stalled(Operation operation);
  [[nodiscard]] std::string missing_ranks();

  ShmRegion& region_;
  BarrierWords& words_;
  int rank_;
  std::uint32_t size_;
  Duration spin_;
  Duration stall_timeout_;
  std::vector<int> names_;
  std::atomic<bool> aborted_{false};  // Of this object: the region may be stamped anew while we still run.
};

}  // namespace sgd::worker
