#pragma once
// Everything of a run's state that is not a tensor of the model or the optimizer. A position says nothing about ranks,
// so a checkpoint loads at any world size; every rank's record holds its sums of the phase in work, exact to the bit,
// and what its operator keeps of its own.
//
// On disk it is state.json, with the tensors of operators in ranks.safetensors. In memory, and between ranks, it is one
// text as in operator_state.hpp.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "worker/core/metrics.hpp"
#include "worker/torch/operator_state.hpp"
#include "worker/torch/optimizer_record.hpp"

namespace sgd::worker {

inline constexpr const char* kStateFile = "state.json";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";
inline constexpr const char* kRanksFile = "ranks.safetensors";  ///< There when an operator has tensors of its own.

/// Where in the run training goes on.
struct Position {
  int epoch = 1;                   ///< From 1; one more than the job's epochs when the run is done.
  std::string phase = "train";     ///< "train" or "validate".
  std::int64_t consumed = 0;       ///< Leading entries of the phase's padded order that completed batches used.
  int pass = 1;                    ///< Over the training data, from 1, in which training is or goes on.
  std::int64_t pass_consumed = 0;  ///< In "validate": `consumed` of training where it goes on.
  std::int64_t batches = 0;        ///< Training batches of the epoch that every rank has done.

  bool operator==(const Position&) const = default;
};

/// What one rank has put into a checkpoint.
struct RankRecord {
  nlohmann::json sums;  ///< Metric sums of the phase in work.
  OperatorState own;    ///< TrainingOperator::state() and state_tensors().
};

struct TrainingState {
  Position position;
  std::int64_t step = 0;  ///< Batches with an update since the run's start.
  int world_size = 1;     ///< Of the ranks in `records`.
  std::uint64_t seed = 0;
  std::vector<OptimizerRecord> optimizers;  ///< Their buffers are in optimizer.safetensors.
  std::vector<RankRecord> records;          ///< By rank.
  OperatorState shared;                     ///< TrainingOperator::shared_state() of rank 0.
  nlohmann::json early_stop;                ///< As in worker/core/early_stop.hpp; null: there is none.
  nlohmann::json loss_scale;                ///< As in worker/core/loss_scale.hpp; null: there is none.
  std::int64_t skipped_updates = 0;         ///< Since the last report of training; the same on every rank.
  std::int64_t rollbacks = 0;               ///< Likewise.
  /// An older worker has written it, which kept rank 0's state alone, for all: that is `shared`, and every rank's own.
  bool shared_is_own = false;
  nlohmann::json made_by;  ///< As in common/checkpoint/made_by.hpp; null: not said.
};

/// state.json. Throws where the text of an operator's state is no JSON.
[[nodiscard]] nlohmann::json to_json(const TrainingState& state);
/// Errors name the field. The tensors of operators are not in it.
[[nodiscard]] Result<TrainingState> parse_training_state(const nlohmann::json& json);

/// The beginning of the one text that holds all of it.
[[nodiscard]] std::string packed_head(const TrainingState& state);
/// That text in pieces, valid as long as `head`, the state, and what it points into.
[[nodiscard]] std::vector<std::string_view> packed_pieces(const std::string& head, const TrainingState& state);
/// Of the pieces, joined.
[[nodiscard]] Result<TrainingState> unpack_training_state(std::string text);

/// Metric sums of the phase in work for one rank of a group of `world_size`. With another size than the state's,
/// the records are dealt out: each is counted by one rank. Errors name the record.
[[nodiscard]] Result<MetricsAccumulator> record_of(const TrainingState& state, int rank, int world_size);

/// In ranks.safetensors: "rank-0000/<name>".
[[nodiscard]] std::string tensor_name_of(int rank, const std::string& name);
/// Gives each rank's record its tensors, which stay in the file's memory. The error names the tensor.
[[nodiscard]] Status add_tensors(const std::shared_ptr<const SafetensorsFile>& file, TrainingState& state);

/// The ranks whose own state rank `rank` of a group of `world_size` gets: rank, rank + world_size, … as far as there
/// are.
[[nodiscard]] std::vector<int> ranks_given_to(int rank, int world_size, int saved_world_size);

}  // namespace sgd::worker
