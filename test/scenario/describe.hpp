#pragma once
// Commands of the machines in the words of a transcript. Empty: not worth a line.

#include <string>

#include "launcher/core/agent_io.hpp"
#include "launcher/core/coordinator_io.hpp"

namespace sgd::test {

[[nodiscard]] std::string describe(const core::CoordinatorCommand& command);
[[nodiscard]] std::string describe(const NodeId& node, const core::AgentCommand& command);

}  // namespace sgd::test
