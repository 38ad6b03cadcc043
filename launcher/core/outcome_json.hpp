#pragma once
// A run's outcome as text for people's tools (summary.json) and for clients of a coordinator, and back.

#include "common/json/nlohmann.hpp"
#include "launcher/core/coordinator_io.hpp"

namespace sgd::core {

/// The keys of summary.json; `cause` is null where nothing failed.
[[nodiscard]] nlohmann::ordered_json to_json(const RunOutcome& outcome);
/// What is missing or of a wrong type keeps its default: a summary may be of another version.
[[nodiscard]] RunOutcome outcome_from_json(const nlohmann::ordered_json& json);

}  // namespace sgd::core
