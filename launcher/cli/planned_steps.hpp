#pragma once
// How many optimizer steps a training job will take if nothing changes its world size, as the worker counts them: one
// for each "gradient_accumulation" batches, and one for those that are left at an epoch's end. For the status line's
// total and remaining time. Reads the data set's header, nothing else.

#include <cstdint>

#include "common/job/spec.hpp"

namespace sgd::cli {

/// 0 for a command, and for a data set whose size is not known before it is loaded.
[[nodiscard]] std::int64_t planned_steps(const job::JobSpec& job);

}  // namespace sgd::cli
