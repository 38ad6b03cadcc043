#pragma once
// What a run, living or ended, has saved, and whether it is whole, as it is shown to people and programs.

#include <string>

#include "common/base/result.hpp"
#include "common/checkpoint/scan.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::storage {

/// {"schema_version", "run_dir", "checked": "sizes" or "checksums", "checkpoints": [{"path", "step", "epoch",
/// "generation", "world_size", "bytes", "age_s", "whole", "damage"}]}, the newest first. kSizes reads manifests, not
/// weights. Of a run that nobody writes to also whether one "is_ahead": of an epoch that metrics.jsonl has no line of,
/// so that a resume does not go on from it. With checkpoint.keep.best in the run's job also "metric", and of each one
/// its "value" (null: no report has its step) and whether it "is_best".
[[nodiscard]] Result<nlohmann::ordered_json> describe_checkpoints(const std::string& run_dir, checkpoint::Proof proof);

}  // namespace sgd::storage
