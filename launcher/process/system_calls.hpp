#pragma once
// What nothing can be started without, tried before anything is: an old kernel, a container's filter of system calls
// and a root folder without /proc refuse it, and what fails later by that would not say so.

#include <optional>
#include <string>

namespace sgd::process {

struct SystemTrouble {
  std::string text;  ///< What is refused, and how.
  std::string fix;
};

/// The first thing that is refused; nothing: all is there.
[[nodiscard]] std::optional<SystemTrouble> system_trouble();

}  // namespace sgd::process
