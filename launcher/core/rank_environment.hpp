#pragma once
// The environment of one rank. Every rank gets the link (SGD_LINK, SGD_TOKEN) and who it is;
// a command also gets torchrun's variables, so that a script written for torchrun runs unchanged, and those of the
// framework that `process.backend` names.

#include <optional>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "common/messages/cluster.hpp"
#include "common/messages/keeper.hpp"

namespace sgd::core {

struct RankIdentity {
  Rank rank = 0;
  int local_rank = 0;
  int local_world_size = 1;
  NodeId node = {};
  std::string token;
  std::string link_path;
  std::string error_file;                                     ///< Where the rank may leave torchrun's error record.
  std::optional<Duration> agent_wait = {};                    ///< An agent that dies comes back within this time.
  std::optional<std::vector<std::string>> visible_gpus = {};  ///< Nothing: whatever there is.
  std::vector<std::string> gpus = {};                         ///< Of its own.
  bool are_gpus_by_bus = false;  ///< Numbers among them count along the bus, and CUDA must be told so.
};

/// What all ranks of a node have in common: variables of the job, and defaults of those that the user has not set.
/// `python_folder`: of our modules; empty: there are none.
[[nodiscard]] keeper::Environment common_environment(const cluster::DesiredRun& run, int local_world_size,
                                                     const std::string& python_folder);
/// That, and who the rank is.
[[nodiscard]] keeper::Environment rank_environment(const cluster::DesiredRun& run, const RankIdentity& identity,
                                                   const std::string& python_folder);

/// The words of a command with "${local_rank}" replaced.
[[nodiscard]] std::vector<std::string> command_of_rank(const nlohmann::json& job, int local_rank);
/// Where a command runs; empty: where its keeper does. `has_own_folder`: runs have a folder of their own on this node.
[[nodiscard]] std::string workdir_of(const cluster::DesiredRun& run, bool has_own_folder);

}  // namespace sgd::core
