#pragma once
// The files that a job brings: which path each of them has where the job was written, and the hash of its bytes. The
// text of it is a file by itself, whose hash stands for all of them.
//
// Whoever reads one has it from somebody else: paths are whole and lead nowhere but down, none is there twice, none is
// a folder of another.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::shipping {

struct ShippedFile {
  std::string path;  ///< "/home/ada/job/train.py"
  std::int64_t bytes = 0;
  std::string sha256;  ///< 64 digits.
};

struct FileSet {
  static constexpr std::size_t kFilesMax = 4096;
  static constexpr std::size_t kTextBytesMax = 4 << 20;
  static constexpr std::size_t kPathBytesMax = 2048;  ///< A node has it below a folder of its own.
  static constexpr std::size_t kNameBytesMax = 255;   ///< Between two slashes.

  std::vector<ShippedFile> files;
};

/// What a set is called among the files of its run.
inline constexpr const char* kSetFile = "manifest.json";

[[nodiscard]] std::string encode(const FileSet& set);
[[nodiscard]] Result<FileSet> parse_file_set(std::string_view text);
/// Why no set has this path; empty: one may.
[[nodiscard]] std::string fault_of_path(std::string_view path);
/// 64 hexadecimal digits in lower case.
[[nodiscard]] bool is_sha256(std::string_view text);
[[nodiscard]] std::int64_t bytes_of(const FileSet& set);

/// `job`, resolved, as it is where its files lie below `folder` with their whole paths: every path in it that is one of
/// "files", or is in one, begins with `folder`; so does a "workdir" that one of them is in.
[[nodiscard]] nlohmann::json with_files_below(nlohmann::json job, const std::string& folder);

}  // namespace sgd::shipping
