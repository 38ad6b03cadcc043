#pragma once
// A folder in which root works though somebody else could put another one, or a link, in its place: what it has open is
// named by its descriptor, which stays the same folder whatever its name leads to.

#include <string>

#include "common/base/result.hpp"

namespace sgd::storage {

/// This process is root, and another user may rename what is in a folder above `directory` (absolute).
[[nodiscard]] bool can_be_exchanged(const std::string& directory);

/// A path of the folder behind `fd`, for programs of root as long as this process has it open. Error: it is not root's.
[[nodiscard]] Result<std::string> path_by_descriptor(int fd, const std::string& directory);

}  // namespace sgd::storage
