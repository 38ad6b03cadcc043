#pragma once
// The job that this worker is to train: read, its plug-ins loaded, and every type in it known.

#include <memory>

#include "common/job/spec.hpp"
#include "common/json/nlohmann.hpp"
#include "sgd/registry.hpp"

namespace sgd::worker {

/// From the resolved job. Throws ConfigurationError with all that is wrong.
[[nodiscard]] job::JobSpec read_worker_job(const nlohmann::json& resolved);

/// Whether all of the job's code is built in, so that running some of it ahead of time changes nothing.
[[nodiscard]] bool is_built_in(const job::Training& training);

/// What names the job's data, one or several.
[[nodiscard]] nlohmann::json data_settings(const job::Training& training);

/// What the job's "function" names; null: it has none.
[[nodiscard]] const TrainingFunction* find_function(const job::Training& training);

/// What the job's "operator" names, else the built-in one.
[[nodiscard]] std::unique_ptr<TrainingOperator> make_operator(const job::Training& training);

}  // namespace sgd::worker
