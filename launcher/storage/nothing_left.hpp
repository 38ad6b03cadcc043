#pragma once
// Whether a run that is to go on has anything left to do.

#include <string>

#include "common/job/spec.hpp"
#include "launcher/storage/run_history.hpp"

namespace sgd::storage {

/// Why there is nothing to train, with what would train more; empty when there is. A command can always be
/// started again.
[[nodiscard]] std::string nothing_left(const job::JobSpec& job, const RunHistory& history);

}  // namespace sgd::storage
