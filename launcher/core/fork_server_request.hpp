#pragma once
// What a keeper is asked for when a run's ranks are forked: the worker with the job, or the Python of a command that
// has imported what the ranks need.

#include <string>

#include "common/messages/cluster.hpp"
#include "common/messages/keeper.hpp"
#include "launcher/core/agent_io.hpp"

namespace sgd::core {

/// True where the ranks of a command are forked off a Python that has imported what they need. `python_folder`: of our
/// modules; empty: there are none.
[[nodiscard]] bool preloads(const nlohmann::json& job, const std::string& python_folder);

/// What a rank of this training is: the job's own worker, or `facts.worker_program`.
[[nodiscard]] std::string worker_of(const nlohmann::json& job, const AgentFacts& facts);

/// Of training, or of a command that preloads(). Its environment depends on how many ranks are on this node.
[[nodiscard]] keeper::StartForkServer fork_server_of(const cluster::DesiredRun& run, const AgentFacts& facts);

}  // namespace sgd::core
