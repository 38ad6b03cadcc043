#pragma once
// A file that is made anew under a temporary name and takes the place of the old one when it is ready, so that whoever
// reads it sees a whole one. It may grow afterwards, by pieces that are there whole or not at all. Blocks.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "launcher/process/own_path.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::callbacks {

class FreshFile {
 public:
  /// Empty, beside `path`, whose folder is made if it is missing; root follows nobody else's links there.
  [[nodiscard]] static Result<FreshFile> create(const std::string& path);
  FreshFile(FreshFile&&) noexcept = default;
  FreshFile& operator=(FreshFile&&) noexcept = default;
  /// What was not published is taken away.
  ~FreshFile();

  /// The first `bytes` of the file that is to be replaced.
  [[nodiscard]] Status copy_front(std::uint64_t bytes);
  /// After an error it is as before.
  [[nodiscard]] Status append(std::string_view bytes);
  [[nodiscard]] Status publish();
  [[nodiscard]] std::uint64_t size() const { return size_; }

 private:
  FreshFile(std::string path, process::OwnPath place, process::UniqueFd file)
      : path_(std::move(path)), place_(std::move(place)), file_(std::move(file)) {}
  [[nodiscard]] std::string temporary() const { return path_ + ".tmp"; }

  std::string path_;
  process::OwnPath place_;
  process::UniqueFd file_;
  std::uint64_t size_ = 0;
  bool is_published_ = false;
};

/// All of it, or the file is as it was: `size` bytes long.
[[nodiscard]] Status append_whole(int file, std::uint64_t size, std::string_view bytes, const std::string& path);
/// Made if it is missing, with those above it; root follows nobody else's links there.
[[nodiscard]] Status make_folder(const std::string& folder);

}  // namespace sgd::callbacks
