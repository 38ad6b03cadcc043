#pragma once
// A file of JSON lines that only grows: a line is written whole or not at all, so that what follows a full disk is
// readable, and lines are counted, so that whoever makes them again knows which are there.

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/result.hpp"

namespace sgd::storage {

class LineFile {
 public:
  /// Creates it if it is missing. With `kept`, everything from the first line on that is torn or no JSON object is cut
  /// off; the first `kept` lines stay, whatever they are.
  [[nodiscard]] static Result<LineFile> open(const std::string& path, std::optional<std::int64_t> kept = std::nullopt);
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&&) = delete;
  ~LineFile();

  /// `line` ends with its newline. After an error the file is as before.
  [[nodiscard]] Status append(const std::string& line);
  [[nodiscard]] std::int64_t lines() const { return lines_; }

 private:
  LineFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  [[nodiscard]] Status count(std::optional<std::int64_t> kept);

  std::string path_;
  int fd_;
  std::int64_t lines_ = 0;
};

}  // namespace sgd::storage
