#pragma once
// The end of a tree whose root is dead and has left nobody to whom its orphans return: they are init's
// children now. They are known by an entry of the environment that the root was started with and that all
// below it have inherited, by its session, and as descendants of those. A process that has emptied its
// environment and left the session and its parents is not found.

#include <sys/types.h>

#include <string>

#include "common/base/result.hpp"
#include "common/base/time.hpp"

namespace sgd::process {

struct StrayMark {
  std::string entry;       ///< "NAME=value" of the environment.
  bool is_prefix = false;  ///< What begins with it counts too.
  pid_t session = 0;       ///< The root's; 0: not known.
};

/// Kills all of this user that bear the mark, until none is left; the error names one that does not die within
/// `limit`. Returns how many were killed. Never the calling process.
[[nodiscard]] Result<int> kill_strays(const StrayMark& mark, Duration limit);

}  // namespace sgd::process
