#pragma once
// Which samples a rank takes at a step. An epoch is one global order of all samples, made from
// (seed, epoch) alone; a step takes the next world_size * batch entries of it, rank r every
// world_size-th from the r-th. The end is padded by wrap-around so that all ranks take the same
// number of batches of equal sizes.
//
// A position is the count of leading entries that completed steps have consumed: it says nothing
// about ranks, so after a change of world size the remaining entries are simply divided anew, each
// of them once. The shuffle is Fisher-Yates with xoshiro256** seeded by splitmix64: the same on
// every machine. Memory: 4 bytes a sample when shuffling, nothing otherwise.

#include <cstdint>
#include <vector>

namespace sgd::worker {

/// Seed of a rank's generators (dropout and the like) at the start of a step, so that no state is stored.
[[nodiscard]] std::uint64_t step_seed(std::uint64_t seed, int epoch, std::int64_t position, int rank);

class Sampler {
 public:
  /// `samples` is 1 .. 2^32-1, `world_size` at least 1.
  Sampler(std::uint64_t seed, int epoch, std::int64_t samples, int world_size, bool shuffle);

  [[nodiscard]] std::int64_t samples() const { return samples_; }
  [[nodiscard]] int world_size() const { return world_size_; }

  /// Entries of the padded order when its part from `position` on is divided among this world size: from 0
  /// it is ceil(N/W)*W. It stays the same while steps of this world size advance the position.
  [[nodiscard]] std::int64_t length(std::int64_t position = 0) const;

  /// Batches of `batch_size` that every rank still takes; from 0 it is ceil(ceil(N/W)/batch_size).
  [[nodiscard]] std::int64_t batches_left(std::int64_t position, std::int64_t batch_size) const;

  /// Samples in each rank's next batch: batch_size, less in the last one, 0 when the epoch is done.
  [[nodiscard]] std::int64_t batch_length(std::int64_t position, std::int64_t batch_size) const;

  /// The position after the step that takes the next batch on every rank.
  [[nodiscard]] std::int64_t advance(std::int64_t position, std::int64_t batch_size) const {
    return position + batch_length(position, batch_size) * world_size_;
  }

  /// Sample numbers of the next batch of `rank`, in `indices` (resized; its memory is reused).
  void batch(std::int64_t position, int rank, std::int64_t batch_size, std::vector<std::int64_t>& indices) const;

  /// Sample number at `entry` of the padded order.
  [[nodiscard]] std::int64_t at(std::int64_t entry) const;

 private:
  std::int64_t samples_;
  int world_size_;
  std::vector<std::uint32_t> order_;  // Empty: the order of the data set.
};

}  // namespace sgd::worker
