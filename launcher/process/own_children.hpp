#pragma once
// Which children this process has started itself. A subreaper has others, too: orphans that whoever died below it has
// left. Who kills those must not kill what another part of the program has started, and knows of no list of.

#include <sys/types.h>

#include <set>

namespace sgd::process {

/// spawn() has started it.
void note_own_child(pid_t pid);

/// Those that are there, or have ended and are not reaped yet.
[[nodiscard]] std::set<pid_t> own_children();

}  // namespace sgd::process
