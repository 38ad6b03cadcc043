#pragma once
// The layout of the memory that the ranks of one host share, and its life: the keeper owns the
// memfd, local rank 0 sizes and stamps it for a generation, every rank maps it. Pages keep
// their contents from generation to generation, because touching new ones is what costs.
//
//   page 0      identity · barrier words, each on a cache line of its own
//   then        one line per rank: what it did last, for messages, and its message size
//   then        a staging area per rank: broadcast, all_gather
//   then        a gradient buffer per rank

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/ids.hpp"
#include "worker/collective/call.hpp"

namespace sgd::worker {

inline constexpr std::size_t kStagingBytes = std::size_t{256} << 10;
inline constexpr int kLocalRanksMax = 1024;

/// Written by local rank 0 only, before anyone else maps the region.
struct alignas(64) RegionIdentity {
  std::atomic<std::uint64_t> magic;  ///< kRegionMagic, written last.
  std::uint64_t generation;          ///< Whose memory this is.
  std::uint64_t gradient_count;      ///< Floats of each gradient buffer.
  std::uint32_t world_size;          ///< Ranks of this host.
};

/// The barrier's words. `epoch` is what waiters poll and sleep on: bit 0 is "aborted", bit 1 "came for different
/// calls", the rest counts barriers passed, so an abort and a release can never overwrite each other or be missed.
struct BarrierWords {
  alignas(64) std::atomic<std::uint64_t> arrived;  ///< Ranks in the barrier now, and above them the sum of their calls.
  std::atomic<std::uint32_t> control;              ///< OR of their control words so far.
  alignas(64) std::atomic<std::uint32_t> epoch;
  std::atomic<std::uint32_t> result[2];             ///< The OR of the last two barriers, by parity.
  alignas(64) std::atomic<std::uint32_t> sleepers;  ///< Ranks that may be in a futex wait.
};

/// One rank's own line.
struct alignas(64) RankLine {
  std::atomic<std::uint32_t> arrivals;  ///< Barriers it has entered: tells who is missing.
  std::uint64_t message_bytes;          ///< Size of its all_gather message; valid between barriers.
  Call call;                            ///< What it came for; read by others when that was not the same for all.
};

/// A mapping of the region. Throws CollectiveSetupError or CollectiveError.
class ShmRegion {
 public:
  /// Bytes that the region needs.
  [[nodiscard]] static std::size_t bytes(int local_world_size, std::size_t gradient_count);

  /// Local rank 0, before the others map: sizes the memfd, clears the barrier, stamps the identity.
  static void prepare(int fd, Generation generation, int local_world_size, std::size_t gradient_count);

  /// Maps a region that was prepared for exactly this group.
  ShmRegion(int fd, Generation generation, int local_world_size, std::size_t gradient_count);
  ShmRegion(const ShmRegion&) = delete;
  ShmRegion& operator=(const ShmRegion&) = delete;
  ~ShmRegion();

  [[nodiscard]] BarrierWords& barrier();
  [[nodiscard]] RankLine& line(int rank);
  [[nodiscard]] std::span<std::byte> staging(int rank);
  /// The gradients of a rank.
  [[nodiscard]] float* gradients(int rank);
  /// Maps all pages of a rank's gradients at once: half of the cost of a fault for each. Where a former generation has
  /// used the region it has them already. Throws std::bad_alloc where there is no memory for them: the first write to
  /// one would be a SIGBUS.
  void populate(int rank);

 private:
  int local_world_size_;
  std::size_t gradient_count_;
  std::size_t mapped_bytes_;
  std::byte* base_ = nullptr;
};

}  // namespace sgd::worker
