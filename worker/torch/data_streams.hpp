#pragma once
// The streams that one rank trains and validates on, and their places in a checkpoint: each rank's record has the state
// of its own, where training is in the middle of a pass.

#include <map>
#include <memory>

#include "worker/torch/checkpoint_state.hpp"
#include "worker/torch/stream_batches.hpp"

namespace sgd::worker {

/// In a rank's record of a checkpoint: what DataStreams::state() gave.
inline constexpr const char* kStreams = "streams";

class DataStreams {
 public:
  /// `place`, but for its split, is that of all. All outlive the object.
  DataStreams(const Dataset& dataset, const StreamPlace& place, Collective& collective);

  /// For training or validation at `position`: from there on, or from the beginning of its pass.
  [[nodiscard]] std::shared_ptr<PassBatches> at(Split split, const Position& position);

  /// Of this rank, by split; empty where no pass is in work. Throws where JSON would lose something of it.
  [[nodiscard]] nlohmann::json state(const Position& position) const;
  /// Goes to where `state` was made. Throws where it has no place of a stream that it needs.
  void load(const TrainingState& state);

 private:
  StreamBatches& of(Split split);

  const Dataset& dataset_;
  StreamPlace place_;
  Collective& collective_;
  std::map<Split, std::shared_ptr<StreamBatches>> all_;
};

}  // namespace sgd::worker
