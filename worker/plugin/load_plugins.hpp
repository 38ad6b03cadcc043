#pragma once
// Libraries of the user's: looked at, loaded, and never closed, since what they have registered lives as long as the
// process.

#include <string>
#include <vector>

#include "common/base/result.hpp"

namespace sgd::worker {

/// The tag that a library carries (sgd/abi.hpp), read from the file without running any of it. Errors: no file, no
/// library, none of ours.
[[nodiscard]] Result<std::string> plugin_abi(const std::string& path);

/// Loads those that are not loaded yet. The first error names the library and what to do: it is missing, was built for
/// another worker, cannot be linked, or has registered something wrongly.
[[nodiscard]] Status load_plugins(const std::vector<std::string>& paths);

}  // namespace sgd::worker
