#pragma once
// Everything a job's ranks need in memory before they are forked: LibTorch's code touched by one
// forward and backward pass, and the data set mapped.

#include "common/json/nlohmann.hpp"
#include "worker/torch/rank_process.hpp"

namespace sgd::worker {

/// Runs on the calling thread alone. Throws ConfigurationError when the job cannot run in this worker, and what
/// the data set throws.
[[nodiscard]] Preloaded warm_up(const nlohmann::json& resolved_job);

/// Intra-op threads of this process, from now on.
void set_intra_op_threads(int threads);

}  // namespace sgd::worker
