#pragma once
// The built-in schema, parsed once.

#include "common/json/schema.hpp"

namespace sgd::job {

[[nodiscard]] const json::Schema& job_schema();

}  // namespace sgd::job
