#pragma once
// The verbs. Each takes the words after its name and returns the exit code of sgd-launch.

#include <string>
#include <vector>

#include "common/json/diagnostics.hpp"

namespace sgd::cli {

[[nodiscard]] int run_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int resume_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int status_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int logs_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int stop_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int checkpoints_verb(const std::vector<std::string>& arguments);
[[nodiscard]] int nodes_verb(const std::vector<std::string>& arguments);

/// All of them on stderr, and how to get help if there is an error.
void print(const Diagnostics& diagnostics);

}  // namespace sgd::cli
