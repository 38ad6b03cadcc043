#pragma once
// state.json of a checkpoint: everything of a run's state that is not a tensor. A position says
// nothing about ranks, so a checkpoint loads at any world size; every rank's record holds its sums
// of the phase in work, exact to the bit.

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "worker/core/metrics.hpp"

namespace sgd::worker {

inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

/// Where in the run training goes on.
struct Position {
  int epoch = 1;                ///< From 1; one more than the job's epochs when the run is done.
  std::string phase = "train";  ///< "train" or "validate".
  std::int64_t consumed = 0;    ///< Leading entries of the phase's padded order that completed batches used.

  bool operator==(const Position&) const = default;
};

struct TrainingState {
  Position position;
  std::int64_t step = 0;  ///< Optimizer steps since the run's start.
  int world_size = 1;     ///< Of the ranks in `records`.
  std::uint64_t seed = 0;
  /// Of the learning rate's: "count", the epochs, batches or calls it has counted, and what else it holds.
  nlohmann::json scheduler = {{"count", 0}};
  std::string optimizer;  ///< Its type; its buffers are in optimizer.safetensors.
  std::int64_t optimizer_steps = 0;
  std::vector<nlohmann::json> records;  ///< By rank: the phase's metric sums.
  nlohmann::json user;                  ///< TrainingOperator::state() of rank 0.
  nlohmann::json made_by;               ///< As in common/checkpoint/made_by.hpp; null: not said.
};

[[nodiscard]] nlohmann::json to_json(const TrainingState& state);
/// Errors name the field.
[[nodiscard]] Result<TrainingState> parse_training_state(const nlohmann::json& json);

/// Metric sums of the phase in work for one rank of a group of `world_size`. With another size than the state's,
/// the records are dealt out: each is counted by one rank. Errors name the record.
[[nodiscard]] Result<MetricsAccumulator> record_of(const TrainingState& state, int rank, int world_size);

}  // namespace sgd::worker
