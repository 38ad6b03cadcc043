#pragma once
// What every rank tells all others when a checkpoint is due: its record, and what decides whether one is made now.

#include <string>

#include "common/base/result.hpp"
#include "worker/torch/checkpoint_state.hpp"

namespace sgd::worker {

struct RankMessage {
  RankRecord record;
  OperatorState shared;     ///< Rank 0's alone counts.
  bool has_unsent = false;  ///< Something that its agent has not got.
  bool is_busy = false;     ///< The checkpoint before is still being written.
};

[[nodiscard]] std::string encode(const RankMessage& message);
/// The states share the text's memory.
[[nodiscard]] Result<RankMessage> decode_rank_message(std::string text);

}  // namespace sgd::worker
