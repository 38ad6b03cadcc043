#pragma once
// Files of tokens, mapped, cut into windows that overlap by one: features are tokens 0 .. length-1 of a window, the
// target tokens 1 .. length. A window never reaches over a file's end; what is left there is not used. Sizes are
// checked by common/data/tokens; all tokens when the files are opened.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "worker/core/mapped_file.hpp"

namespace sgd::worker {

class TokenDataset {
 public:
  /// `width`: bytes of a token, 1, 2 or 4. Tokens must be below `vocabulary`.
  static Result<TokenDataset> open(const std::vector<std::string>& files, std::int64_t width, std::int64_t length,
                                   std::int64_t vocabulary);

  /// Windows.
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t length() const { return length_; }

  /// Writes length() tokens a window into both.
  void gather(std::span<const std::int64_t> windows, std::int64_t* features, std::int64_t* target) const;

 private:
  struct File {
    MappedFile bytes;
    std::int64_t first = 0;  ///< Number of its first window.
  };

  std::vector<File> files_;
  std::int64_t count_ = 0;
  std::int64_t length_ = 0;
  std::int64_t width_ = 2;
};

}  // namespace sgd::worker
