#include "common/data/file_list.hpp"

#include <glob.h>

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

namespace sgd::data {
namespace fs = std::filesystem;
namespace {

Result<std::vector<std::string>> matches_of(const std::string& pattern) {
  std::error_code error;
  // A name may hold a bracket of its own.
  if (fs::exists(pattern, error)) return std::vector<std::string>{pattern};
  glob_t found{};
  const int code = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> names;
  if (code == 0) names.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (code != 0 && code != GLOB_NOMATCH) return Error{fmt::format("cannot look for data files {}", pattern)};
  if (!names.empty()) {
    std::sort(names.begin(), names.end());
    return names;
  }
  const bool is_glob = pattern.find_first_of("*?[") != std::string::npos;
  return Error{is_glob ? fmt::format("no data file matches {}", pattern)
                       : fmt::format("data file {} does not exist", pattern)};
}

}  // namespace

std::vector<std::string> patterns_of(const nlohmann::json& files) {
  std::vector<std::string> patterns;
  if (files.is_string()) patterns.push_back(files.get<std::string>());
  if (!files.is_array()) return patterns;
  for (const auto& item : files) {
    if (item.is_string()) patterns.push_back(item.get<std::string>());
  }
  return patterns;
}

Result<std::vector<std::string>> find_files(const std::vector<std::string>& patterns) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    const Result<std::vector<std::string>> matches = matches_of(pattern);
    if (!matches) return matches;
    files.insert(files.end(), matches.value().begin(), matches.value().end());
  }
  for (const std::string& file : files) {
    std::error_code error;
    if (!fs::is_regular_file(file, error)) return Error{fmt::format("data file {} is not a regular file", file)};
  }
  std::vector<std::string> sorted = files;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return Error{fmt::format("data file {} is named twice", *twice)};
  return files;
}

Result<std::size_t> data_file_bytes(const std::string& path) {
  std::error_code error;
  const auto bytes = fs::file_size(path, error);
  if (error) return Error{fmt::format("data file {}: {}", path, error.message()), error.value()};
  return static_cast<std::size_t>(bytes);
}

Status check_sample_count(const std::string& subject, std::int64_t count) {
  if (count > 0 && count <= kSamplesMax) return {};
  return Error{fmt::format("{} has {} samples, expected 1 to {}", subject, count, kSamplesMax)};
}

}  // namespace sgd::data
