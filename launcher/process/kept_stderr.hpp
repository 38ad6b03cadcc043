#pragma once
// The standard error of a child that may say why it ends, and to nobody but us.

#include <sys/types.h>

#include <string>

#include "common/base/result.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::process {

/// A file in memory of a fixed size: whoever has it, another user's process too, cannot make it grow.
class KeptStderr {
 public:
  static constexpr std::size_t kBytes = 4 * 1024;

  [[nodiscard]] static Result<KeptStderr> make();
  /// That of a process that another one of our lives has started; an error where it has ended, or has none.
  [[nodiscard]] static Result<KeptStderr> of(pid_t pid);

  [[nodiscard]] int fd() const { return file_.get(); }
  /// What was written, up to kBytes. What is neither printable ASCII nor a newline becomes "?": another user may have
  /// written it.
  [[nodiscard]] std::string text() const;

 private:
  explicit KeptStderr(UniqueFd file) : file_(std::move(file)) {}

  UniqueFd file_;
};

/// The last line that is not empty, without `prefix` where it begins with that, and at most `bytes_max` of it.
[[nodiscard]] std::string last_line(const std::string& text, const std::string& prefix, std::size_t bytes_max);

}  // namespace sgd::process
