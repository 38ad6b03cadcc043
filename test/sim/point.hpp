#pragma once
// Where training stands, and which samples led there: the arithmetic of a run without its numbers. What
// a real worker would keep in a checkpoint is a value here. Uses the worker's own sampler.

#include <cstdint>
#include <vector>

#include "common/job/spec.hpp"
#include "worker/core/memory_checkpoint.hpp"

namespace sgd::sim {

/// Entries of the padded order that steps of one world size have consumed.
struct Stretch {
  std::int64_t from = 0;
  std::int64_t to = 0;
  int world_size = 1;
};

struct Point {
  std::int64_t step = 0;
  int epoch = 1;
  bool validating = false;
  std::int64_t consumed = 0;          ///< Of this phase.
  std::vector<Stretch> stretches;     ///< Of this phase, in order.
  std::vector<std::int64_t> records;  ///< Samples of this phase, by rank.

  [[nodiscard]] worker::MemoryPoint memory_point() const { return {step, epoch, validating, consumed}; }
  [[nodiscard]] bool same_place(const Point& other) const { return memory_point() == other.memory_point(); }

  /// Every rank of a new world size takes over the records that become its own.
  void divide_anew(int world_size);
  /// All ranks take their next batch. False: the phase has none left, and nothing has changed.
  bool advance(const job::Training& training, std::int64_t samples);
  [[nodiscard]] bool phase_is_done(const job::Training& training, std::int64_t samples) const;
  void next_phase();
};

}  // namespace sgd::sim
