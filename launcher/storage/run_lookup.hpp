#pragma once
// Finds a run that somebody names: a folder, an id below runs/, a unique prefix of one, or
// nothing for the latest. Reads the file system only.

#include <string>
#include <vector>

#include "common/base/result.hpp"

namespace sgd::storage {

/// Absolute folder of the run, or an error that lists what could have been meant.
[[nodiscard]] Result<std::string> find_run(const std::string& name);

}  // namespace sgd::storage
