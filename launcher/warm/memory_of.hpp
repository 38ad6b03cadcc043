#pragma once
// What a tree of processes takes of the machine's memory.

#include <sys/types.h>

#include <cstdint>

namespace sgd::warm {

/// Bytes of `root` and all below it, pages that several have counted in parts (Pss). 0: the kernel does not say.
[[nodiscard]] std::int64_t memory_of_tree(pid_t root);

}  // namespace sgd::warm
