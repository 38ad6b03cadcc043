#pragma once
// The layout of the memory file that the ranks of a C group share.
//
//   page 0   stamp · words of the barrier · why the group was aborted
//   then     a line per rank: what it does now
//   then     per rank: two slots for what it gives, two for what it has reduced
//
// The file has no name, so whatever kills its owners, nothing is left of it. Pages exist once they are written to.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "worker/collective/call.hpp"

namespace sgd::worker {

inline constexpr int kPeersMax = 1024;
inline constexpr std::size_t kSlotBytes = std::size_t{1} << 20;

/// Of PeerBarrierWords::reason_state.
inline constexpr std::uint32_t kNoReason = 0;
inline constexpr std::uint32_t kReasonBegun = 1;
inline constexpr std::uint32_t kReasonWhole = 2;

/// Words that all ranks change. `epoch` is what waiters poll and sleep on: bit 0 is "aborted", bit 1 "came for
/// different calls", the rest counts meetings.
struct PeerBarrierWords {
  alignas(64) std::atomic<std::uint64_t> arrived;  ///< Ranks in the barrier now, and above them the sum of their calls.
  alignas(64) std::atomic<std::uint32_t> epoch;
  alignas(64) std::atomic<std::uint32_t> sleepers;  ///< Ranks that may be in a futex wait.
  std::atomic<std::uint32_t> reason_state;          ///< Who comes first writes `reason`, and then aborts.
  char reason[448];                                 ///< Terminated; valid once its state is kReasonWhole.
};

/// One rank's own line.
struct alignas(64) PeerLine {
  std::atomic<std::uint32_t> arrivals;  ///< Meetings it has come to: tells who is missing.
  std::atomic<std::uint32_t> left;      ///< It has closed the group.
  Call call;                            ///< What it came for; read by others when that was not the same for all.
};

/// A mapping. Throws CollectiveError.
class PeerRegion {
 public:
  /// A new file for `size` ranks: its descriptor.
  [[nodiscard]] static int create(int size, std::uint64_t token);

  PeerRegion(int fd, std::uint64_t token, int size);
  PeerRegion(const PeerRegion&) = delete;
  PeerRegion& operator=(const PeerRegion&) = delete;
  ~PeerRegion();

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] PeerBarrierWords& words();
  [[nodiscard]] PeerLine& line(int rank);
  /// Of kSlotBytes; `parity` is 0 or 1.
  [[nodiscard]] std::byte* given(int rank, std::size_t parity);
  [[nodiscard]] std::byte* reduced(int rank, std::size_t parity);

 private:
  [[nodiscard]] std::byte* slot(int rank, std::size_t index);

  int size_;
  std::size_t bytes_;
  std::byte* base_ = nullptr;
};

}  // namespace sgd::worker
