#pragma once
// `sgd-worker --config job.json`: from its words to the exit code.

#include <functional>
#include <string>
#include <vector>

namespace sgd::worker {

/// `run_rank` is the rank: it finds its link in the environment, and returns one of worker_exit.
[[nodiscard]] int run_config_command(const std::vector<std::string>& arguments, const std::function<int()>& run_rank);

}  // namespace sgd::worker
