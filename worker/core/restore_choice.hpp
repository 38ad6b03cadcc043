#pragma once
// Which state a generation goes on from, as a function over what the ranks offer: the newest
// checkpoint in any node's memory, or the one on disk that rank 0 looks at. Reads nothing.

#include <cstdint>
#include <optional>
#include <vector>

#include "common/base/ids.hpp"
#include "worker/core/memory_checkpoint.hpp"

namespace sgd::worker {

/// A node's newest whole memory checkpoint, told by its local rank 0.
struct MemoryOffer {
  Rank rank = 0;  ///< Who tells it.
  int node = 0;
  MemorySlot slot;
};

/// A checkpoint on disk as its manifest has it.
struct DiskOffer {
  Generation generation = 0;  ///< 0 for one of another run, whose generations say nothing about this one's.
  std::int64_t step = 0;
};

enum class RestoreSource { kFresh, kMemory, kDisk };

/// "fresh", "memory" or "disk".
[[nodiscard]] const char* name_of(RestoreSource source);

/// The newest by generation, step, position and sequence; the lowest rank among equals.
[[nodiscard]] std::optional<MemoryOffer> newest(const std::vector<MemoryOffer>& offers);

/// Whether both hold the same state. Sequences are each region's own and say nothing about that.
[[nodiscard]] bool same_state(const MemoryOffer& one, const MemoryOffer& other);

/// Disk only when it is newer: reading memory is faster, and its position may be inside an epoch.
[[nodiscard]] RestoreSource choose(const std::optional<MemoryOffer>& memory, const std::optional<DiskOffer>& disk);

}  // namespace sgd::worker
