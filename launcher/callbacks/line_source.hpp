#pragma once
// The whole lines of a run's file of JSON lines, which grows: from a line on, a piece at a time. The file is the queue
// between a run and its callbacks: it holds everything, and nothing of it waits in memory. Blocks.

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::callbacks {

class LineSource {
 public:
  static constexpr std::size_t kPieceBytes = 256 << 10;

  explicit LineSource(std::string path) : path_(std::move(path)) {}

  /// Goes behind the first `lines` lines; where fewer are there, those to come up to that number are passed over, too.
  void seek(std::int64_t lines);
  /// The next lines, without their newlines; none: no more are whole. A file that is missing has none.
  [[nodiscard]] Result<std::vector<std::string>> next();
  /// Lines that were given or passed over.
  [[nodiscard]] std::int64_t passed() const { return passed_; }
  /// Whole lines behind those; reads the rest of the file.
  [[nodiscard]] Result<std::int64_t> left();

 private:
  [[nodiscard]] Result<bool> read_more();

  std::string path_;
  process::UniqueFd file_;
  std::uint64_t read_ = 0;  ///< Bytes.
  std::string partial_;     ///< What was read behind the last newline.
  std::int64_t passed_ = 0;
  std::int64_t skip_ = 0;  ///< Lines to pass over.
};

}  // namespace sgd::callbacks
