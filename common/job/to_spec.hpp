#pragma once
// From a completed, validated job to its typed form. Total: every value has been checked before.

#include "common/job/spec.hpp"

namespace sgd::job {

[[nodiscard]] JobSpec to_spec(nlohmann::json resolved);

}  // namespace sgd::job
