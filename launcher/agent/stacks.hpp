#pragma once
// Where processes stand, as their node sees it from outside: kernel state, what they sleep in, and the
// system call. Our own worker adds its stack to the same file when it is asked by signal.

#include <map>
#include <string>

#include "common/base/ids.hpp"

namespace sgd::agent {

/// Appends to errors/gen-0001-rank-0000.stack for each rank, in the name of the folder's owner. Best effort: a process
/// that is gone, or is not the owner's, is left out.
void keep_stacks(const std::string& run_dir, Generation generation, const std::map<Rank, int>& pids);

}  // namespace sgd::agent
