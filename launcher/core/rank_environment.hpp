#pragma once
// The environment of one rank. Every rank gets the link (SGD_LINK, SGD_TOKEN) and who it is;
// a command also gets torchrun's variables, so that a script written for torchrun runs unchanged.

#include <map>
#include <optional>
#include <string>

#include "common/base/time.hpp"
#include "common/messages/cluster.hpp"

namespace sgd::core {

struct RankIdentity {
  Rank rank = 0;
  int local_rank = 0;
  int local_world_size = 1;
  std::string token;
  std::string link_path;
  std::string error_file;                   ///< Where the rank may leave torchrun's error record.
  std::optional<Duration> agent_wait = {};  ///< An agent that dies comes back within this time.
};

[[nodiscard]] std::map<std::string, std::string> rank_environment(const cluster::DesiredRun& run,
                                                                  const RankIdentity& identity);

}  // namespace sgd::core
