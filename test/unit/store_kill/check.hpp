#pragma once
// What the killed coordinator's runs must look like in the end.

#include <map>
#include <string>
#include <vector>

#include "../store/scripted_agent.hpp"

namespace sgd::test {

/// What is wrong, in words; empty: nothing. `runs`: the ids by the number of their request.
[[nodiscard]] std::vector<std::string> findings(const std::string& folder, const std::map<int, std::string>& runs);

/// Of a run by its id, which carries the number of its request.
[[nodiscard]] Script script_of(const std::string& run);

}  // namespace sgd::test
