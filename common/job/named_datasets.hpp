#pragma once
// "training.datasets": data sets by name, of each of which one part is used. What "train" names is trained on; of any
// other set the part to validate on is used. A set need not say the part that is not used.

#include <string>

#include "common/json/nlohmann.hpp"

namespace sgd::job {

inline constexpr const char* kTrainSet = "train";
inline constexpr const char* kValidationSet = "validation";

/// The key of its files, and the name of the split: "train" or "validation".
[[nodiscard]] const char* part_used(const std::string& name);

/// Whether `dataset` says neither part, where its type has them as keys.
[[nodiscard]] bool lacks_both_parts(const nlohmann::json& dataset);

/// Whether `training` names nothing to validate on: its data set has no part for it, or none of several is for it. A
/// plug-in's data set may have none all the same.
[[nodiscard]] bool lacks_validation(const nlohmann::json& training);

/// As "training.dataset" has it: the part that is not said is the other one.
[[nodiscard]] nlohmann::json with_both_parts(nlohmann::json dataset);

}  // namespace sgd::job
