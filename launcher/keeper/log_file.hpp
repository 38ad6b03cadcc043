#pragma once
// A file that a rank's output is appended to, every byte: a slow disk holds the writer back. Only a disk that refuses
// bytes loses any, counted.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/messages/keeper.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::keeper {

[[nodiscard]] std::int64_t count_lines(std::string_view bytes);

class LogFile {
 public:
  /// None: what is written goes nowhere.
  LogFile() = default;
  /// Opens it for appending, with its folders.
  [[nodiscard]] static Result<LogFile> open(const std::string& path);

  [[nodiscard]] explicit operator bool() const { return static_cast<bool>(file_); }
  void write(std::string_view bytes);
  /// What is to be told now: that bytes are lost, when it begins, and how many they were, when it ends.
  [[nodiscard]] std::optional<OutputDropped> take_news(Rank rank);
  /// The rest of what is lost.
  [[nodiscard]] std::optional<OutputDropped> take_dropped(Rank rank);

 private:
  std::string path_;
  process::UniqueFd file_;
  std::int64_t lines_ = 0;  ///< Lost and not told.
  std::int64_t bytes_ = 0;
  std::string error_;     ///< Why, the last time; told with them.
  bool refuses_ = false;  ///< The last bytes did not go.
  bool has_news_ = false;
};

}  // namespace sgd::keeper
