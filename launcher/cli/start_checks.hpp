#pragma once
// What a job needs of this machine, looked at before anything is created or changed: data, the
// worker program, the command's program.

#include <string>

#include "common/job/spec.hpp"
#include "common/json/diagnostics.hpp"

namespace sgd::cli {

/// Appends what is missing. `source` stands for the job where a place in its file is not known.
void check_start(const job::JobSpec& job, const std::string& source, Diagnostics& diagnostics);

}  // namespace sgd::cli
