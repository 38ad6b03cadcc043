#pragma once
// `sgd-worker --list KIND [--plugin FILE]... [--json]`: what a job file may name, with keys and defaults.

#include <string>
#include <vector>

namespace sgd::worker {

/// `arguments` behind --list. Prints, and returns the exit code: 2 for what cannot be listed, in words on stderr.
[[nodiscard]] int run_list_command(const std::vector<std::string>& arguments);

}  // namespace sgd::worker
