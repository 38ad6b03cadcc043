#pragma once
// A terminal's end of our own. The one that a shell has given polls writable with room for a few bytes, and then waits
// until it has room for all that is written; others share it, so it has to stay as it is.

#include "launcher/process/unique_fd.hpp"

namespace sgd::process {

/// For writing, without waiting. None: `fd` is no terminal, or this account may not open it.
[[nodiscard]] UniqueFd own_end_of_terminal(int fd);

}  // namespace sgd::process
