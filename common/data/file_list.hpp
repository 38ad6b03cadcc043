#pragma once
// The files of a data set, from what a job names: paths, and globs with *, ? and [...]. The order is the list's, and
// inside a glob that of the names byte by byte, so that sample numbers mean the same on every node.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::data {

/// "train" or "validation" of a data set in a job: one path, or a list of them.
[[nodiscard]] std::vector<std::string> patterns_of(const nlohmann::json& files);

/// Errors name what matches nothing, is no regular file, or is there twice.
[[nodiscard]] Result<std::vector<std::string>> find_files(const std::vector<std::string>& patterns);

/// Bytes of a data file.
[[nodiscard]] Result<std::size_t> data_file_bytes(const std::string& path);

/// Samples of a split: what a sampler counts to.
inline constexpr std::int64_t kSamplesMax = 0xffffffff;
/// An error when a split has none, or more than that; `subject` names it.
[[nodiscard]] Status check_sample_count(const std::string& subject, std::int64_t count);

}  // namespace sgd::data
