#pragma once
// Runs a program to its end and takes what it has said: for questions to programs that answer soon. Blocks.

#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"

namespace sgd::process {

struct CapturedOutput {
  bool is_late = false;  ///< It had not ended in time, and was killed.
  int exit_code = 0;
  int signal = 0;    ///< That ended it; 0: none.
  std::string text;  ///< Of stdout and stderr, without line ends behind it; at most 4 MiB.
};

/// Error: it could not be started.
[[nodiscard]] Result<CapturedOutput> capture_output(std::vector<std::string> argv, Duration patience);

}  // namespace sgd::process
