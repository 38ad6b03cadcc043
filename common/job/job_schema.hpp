#pragma once
// The schema of a job file, parsed once, and with what plug-ins add to it.

#include <string>

#include "common/json/schema.hpp"

namespace sgd::job {

[[nodiscard]] const json::Schema& job_schema();

/// The same with the types that plug-ins register, and no others; `registered` as in load.hpp, not null.
[[nodiscard]] json::Schema job_schema_with(const nlohmann::json& registered);

/// The "oneOf" of the objects that "training" may name by their type; `kind`: "model", "loss" and so on.
[[nodiscard]] const nlohmann::json& types_of(const json::Schema& schema, const std::string& kind);

}  // namespace sgd::job
