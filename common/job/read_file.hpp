#pragma once
// A job file's bytes, with a limit that also holds for pipes: never more than one byte above it is read. And
// what was meant by a file that is missing.

#include <string>

#include "common/base/result.hpp"

namespace sgd::job {

/// `path` may be "-" for standard input. A pipe is read until its writer closes it.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t bytes_max);

/// "; did you mean train.py?" of a file that is missing, where one beside it has the same ending and nearly its name;
/// else nothing.
[[nodiscard]] std::string did_you_mean_file(const std::string& path);

}  // namespace sgd::job
