#pragma once
// runs/latest, a link to the run that is meant where nobody names one. Only a convenience: what cannot be done about it
// is no error.

#include <string>

#include "common/json/nlohmann.hpp"

namespace sgd::storage {

/// To `directory`, if it lies in a folder "runs" and its job trains: who has looked at a run's weights goes on with
/// that run.
void point_latest(const std::string& directory, const nlohmann::json& resolved_job);

/// Where latest in `runs_dir` leads to nothing: to the run that was written to last of those that are left, or away.
void mend_latest(const std::string& runs_dir);

}  // namespace sgd::storage
