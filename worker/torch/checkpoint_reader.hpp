#pragma once
// Reads a checkpoint back, at any world size. Checks first: the manifest, then size and CRC-32C of
// every file it lists. Every error is an exception whose text begins with the file's path; nothing
// is read from a checkpoint that is not whole.

#include <string>

#include "worker/core/metrics.hpp"
#include "worker/torch/checkpoint_state.hpp"
#include "worker/torch/state_parts.hpp"

namespace sgd::worker {

class CheckpointReader {
 public:
  explicit CheckpointReader(std::string dir);

  /// With what operators keep of their own; its memory is its own.
  [[nodiscard]] const TrainingState& state() const { return state_; }

  /// Fills them. Names, shapes and types must be exactly those of the checkpoint.
  void read_tensors(const StateTensors& tensors) const;

  /// Metric sums of the phase in work for one rank of a group of `world_size`. With another size than the
  /// checkpoint's, the records are dealt out: each is counted by one rank.
  [[nodiscard]] MetricsAccumulator record(int rank, int world_size) const;

 private:
  /// Whether there is a file of ranks' own tensors.
  bool check_files() const;
  [[nodiscard]] std::string path(const std::string& file) const { return dir_ + "/" + file; }

  std::string dir_;
  TrainingState state_;
};

}  // namespace sgd::worker
