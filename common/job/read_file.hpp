#pragma once
// A job file's bytes, with a limit that also holds for pipes: never more than one byte above it is read.

#include <string>

#include "common/base/result.hpp"

namespace sgd::job {

/// `path` may be "-" for standard input. A pipe is read until its writer closes it.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t bytes_max);

}  // namespace sgd::job
