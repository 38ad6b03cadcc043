#pragma once
// Files and names reach the disk before it is promised that they are there: a power failure takes what did not.

#include <string>

#include "common/base/result.hpp"

namespace sgd::storage {

/// The bytes of a file, or the names in a folder. No error where a file system has no such order for folders.
[[nodiscard]] Status sync_path(const std::string& path);
/// The names of all that is below the folder `top`, and its own; no bytes of files.
[[nodiscard]] Status sync_names(const std::string& top);

}  // namespace sgd::storage
