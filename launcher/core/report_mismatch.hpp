#pragma once
// Ranks that do not report the same: whose report lacks a key that another rank's has. Nothing fails over it (the value
// is that of the ranks that have it), but whoever wrote the program is told, since he rarely meant it.

#include <string>
#include <vector>

#include "common/base/ids.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::core {

struct KeyMismatch {
  std::string key;
  std::vector<Rank> without;  ///< Ranks whose report lacks it.
};

/// Whether a rank had a sample of this part of training; whoever does not count them had some.
[[nodiscard]] bool has_samples(const nlohmann::json& metrics);

/// `per_rank`: the metrics of one report in rank order. Ranks that had no sample of this part of training, as those
/// that come for its last batches, are not asked for anything.
[[nodiscard]] std::vector<KeyMismatch> find_mismatches(const std::vector<nlohmann::json>& per_rank);

}  // namespace sgd::core
