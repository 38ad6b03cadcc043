#pragma once
// What a checkpoint's state holds of one optimizer beside its buffers.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/json/nlohmann.hpp"

namespace sgd::worker {

struct OptimizerKind {
  std::string name;
  std::string type;

  bool operator==(const OptimizerKind&) const = default;
};

struct OptimizerRecord {
  std::string name;  ///< Empty: written when there was one, without a name.
  std::string type;
  std::int64_t steps = 0;                     ///< Updates of the parameter that has had most.
  std::vector<std::int64_t> parameter_steps;  ///< Of each; empty: all have had as many.
  std::int64_t batches = 0;                   ///< In which it was updated.
  /// One for each group, of its learning rate's: "count", the epochs, batches or calls it has counted, and what else it
  /// holds.
  std::vector<nlohmann::json> schedulers;
  /// {"made": settings in setup(), "now": settings then} of each group; null: not said.
  nlohmann::json groups;
  std::optional<double> used_rate = std::nullopt;  ///< Of the last update, as told; nothing: it is not said.

  bool operator==(const OptimizerRecord&) const = default;
};

/// Throws, naming both, where a checkpoint is of other optimizers than the job's.
void check_same_optimizers(const std::vector<OptimizerRecord>& written, const std::vector<OptimizerKind>& jobs);

[[nodiscard]] nlohmann::json to_json(const OptimizerRecord& record);
/// Throws the JSON library's exceptions.
[[nodiscard]] OptimizerRecord optimizer_record_from(const nlohmann::json& json);

}  // namespace sgd::worker
