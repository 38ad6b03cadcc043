#pragma once
// Finds a run that somebody names: a folder, an id below a folder of runs, a unique prefix of one, or
// nothing for the latest. Reads the file system only.

#include <string>
#include <vector>

#include "common/base/result.hpp"

namespace sgd::storage {

/// Absolute folder of the run, or an error that lists what could have been meant. `runs_dir`: where runs are.
[[nodiscard]] Result<std::string> find_run(const std::string& name, const std::string& runs_dir = "runs");

/// Whether some run is in this folder that can be seen.
[[nodiscard]] bool has_runs(const std::string& runs_dir);

/// Why `folder` cannot be listed, with the folder that is closed; empty: it can, or is not there.
[[nodiscard]] std::string why_unlisted(const std::string& folder);

}  // namespace sgd::storage
