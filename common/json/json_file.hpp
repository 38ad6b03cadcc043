#pragma once
// What a file holds, without a stream: one that is parsed from, or copied by its iterators, throws when a read fails,
// as on a bad disk, of a process that has just ended, or where a folder has the file's name.

#include <string>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::json {

/// Error: it is no regular file, or it cannot be read.
[[nodiscard]] Result<std::string> text_of_file(const std::string& path);
/// Discarded where it cannot be read, is no JSON, or is nested deeper than kFileDepthMax (shallow.hpp). Comments are
/// passed over.
[[nodiscard]] nlohmann::json read_file(const std::string& path);
[[nodiscard]] nlohmann::ordered_json read_ordered_file(const std::string& path);

}  // namespace sgd::json
