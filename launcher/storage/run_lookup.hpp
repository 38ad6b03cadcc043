#pragma once
// Finds a run that somebody names: a folder, an id below a folder of runs, a unique prefix of one, or
// nothing for the latest. Reads the file system only.

#include <string>
#include <vector>

#include "common/base/result.hpp"

namespace sgd::storage {

/// Absolute folder of the run, or an error that lists what could have been meant. `runs_dir`: where runs are.
[[nodiscard]] Result<std::string> find_run(const std::string& name, const std::string& runs_dir = "runs");

}  // namespace sgd::storage
