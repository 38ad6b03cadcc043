#pragma once
// A barrier over shared words that also ORs a control word. The last rank to arrive publishes
// the OR and advances the epoch; the others wait for the epoch to change.
//
//   arrive ──not last──> spin ──budget spent──> futex sleep ──> released | aborted | timed out
//      └────last───> publish OR, advance epoch, wake sleepers if any
//
// Waiting for ranks that have a core each spins first, since a wake-up costs more than a step's
// imbalance; ranks that share cores sleep soon, since a spinning rank keeps the core from the one
// that is waited for. Who died is the launcher's business: here only abort and time-out end a wait.

#include <atomic>
#include <cstdint>
#include <string>

#include "common/base/time.hpp"
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

  /// The OR of every rank's `control`. Throws CollectiveError; `operation` names the caller in it.
  std::uint32_t wait(std::uint32_t control, const char* operation);

  /// From any thread: releases every rank of the region, now and for ever.
  void abort() noexcept;

 private:
  void wait_for_release(std::uint32_t epoch_before, const char* operation);
  [[noreturn]] void throw_aborted(const char* operation) const;
  [[noreturn]] void throw_stalled(const char* operation);
  [[nodiscard]] std::string missing_ranks();

  ShmRegion& region_;
  BarrierWords& words_;
  int rank_;
  std::uint32_t size_;
  Duration spin_;
  Duration stall_timeout_;
  std::atomic<bool> aborted_{false};  // Of this object: the region may be stamped anew while we still run.
};

}  // namespace sgd::worker
