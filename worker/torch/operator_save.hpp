#pragma once
// What an operator keeps of its own: taken from it for a checkpoint, and given back to it at any world size. Whatever
// could not come back exactly is refused when it is saved, not found out when it is needed.

#include <cstddef>

#include "sgd/training_operator.hpp"
#include "worker/collective/limits.hpp"
#include "worker/torch/checkpoint_state.hpp"

namespace sgd::worker {

/// Where an operator, and a training function, keep tensors: the way out of what JSON does not hold.
inline constexpr const char* kOperatorTensors = "state_tensors()";
inline constexpr const char* kFunctionTensors = "the tensors of save_checkpoint()";

/// The JSON of one state() or shared_state(), as text: it is parsed whole when it is restored.
inline constexpr std::size_t kStateJsonBytesMax = std::size_t{64} << 20;

/// Throws with the way out when the JSON is longer than that. `what` is "state()", "shared_state()" or
/// "save_checkpoint()", `tensors_in` where its tensors are kept.
void check_json_bytes(const char* what, int rank, std::size_t bytes, const char* tensors_in = kOperatorTensors);
/// Throws with the way out when what one rank tells all, its tensors with it, is more than can be gathered.
void check_rank_bytes(int rank, std::size_t bytes);

/// The text of JSON that comes back equal to the bit. Throws, naming `what`, the place in it and the way out, where it
/// would not.
[[nodiscard]] std::string exact_json(const char* what, int rank, const nlohmann::json& value, const char* way_out);
/// JSON as a state. Throws, naming `what` and the place in it, where it would not come back equal to the bit.
[[nodiscard]] OperatorState json_state_of(const char* what, int rank, const nlohmann::json& value,
                                          const char* tensors_in = kOperatorTensors);
/// Tensors beside it. Throws, naming the tensor, where checkpoints cannot hold it.
void add_tensors(const NamedTensors& tensors, int rank, OperatorState& state,
                 const char* tensors_in = kOperatorTensors);
/// Its tensors, in memory of their own.
[[nodiscard]] NamedTensors tensors_of(const OperatorState& state);

/// state() and state_tensors(); tensors are copied where they are not dense or not in this process's memory.
[[nodiscard]] OperatorState own_state_of(const TrainingOperator& training_operator, int rank);
/// shared_state(), on rank 0.
[[nodiscard]] OperatorState shared_state_of(const TrainingOperator& training_operator);

/// Calls the load functions on rank `rank` of a group of `world_size`. Throws where `state` holds no JSON.
void give_back(const TrainingState& state, int rank, int world_size, TrainingOperator& training_operator);

}  // namespace sgd::worker
