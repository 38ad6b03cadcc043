#pragma once
// A rank that holds up all others: in a synchronous group everybody's step is as long as the slowest one's, so ranks
// are compared by what a step takes them without the time inside collectives.

#include <optional>
#include <vector>

#include "common/base/ids.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::core {

struct Straggler {
  Rank rank = 0;
  double own_ms = 0;     ///< Of one step.
  double others_ms = 0;  ///< The median of the other ranks.
};

/// Its own part of a step is at least this many times the others'.
inline constexpr double kStragglerFactor = 1.5;
/// And it makes a step longer by at least this much, and by this part of it: less is nobody's loss.
inline constexpr double kStragglerCostMs = 5;
inline constexpr double kStragglerCostPart = 0.05;
/// Batches of an epoch below which nobody is judged.
inline constexpr int kStragglerBatches = 20;

/// `per_rank`: the metrics that each rank has reported of the same part of training, in rank order; "step_ms"."own"
/// counts.
[[nodiscard]] std::optional<Straggler> find_straggler(const std::vector<nlohmann::json>& per_rank);

}  // namespace sgd::core
