#pragma once
// Whether a run that is to go on has anything left to do, and can do it with the job that it has now.

#include <string>

#include "common/job/spec.hpp"
#include "launcher/storage/run_history.hpp"

namespace sgd::storage {

/// Why there is nothing to train, with what would train more; empty when there is. A command can always be
/// started again.
[[nodiscard]] std::string why_nothing_to_train(const job::JobSpec& job, const RunHistory& history);

/// Why `history` cannot go on with `job`, and what to do: nothing is left, or its newest checkpoint means nothing under
/// it. Empty: it can, and `history.past` knows whether bit for bit.
[[nodiscard]] std::string fit_to_job(const job::JobSpec& job, RunHistory& history);

/// Gives `history.past` the values by which `job` keeps its best checkpoints, of the lines in `directory`.
[[nodiscard]] Status add_scores(const job::JobSpec& job, const std::string& directory, RunHistory& history);

}  // namespace sgd::storage
