#pragma once
// What launchers that have a coordinator and nodes in their own process have in common: what an agent there is told of
// where it runs, how such a launcher begins, and how it speaks of its folder and to its control socket.

#include <string>

#include "common/base/result.hpp"
#include "common/job/spec.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/core/agent_io.hpp"

namespace sgd::cli {

struct LocalPlace {
  int index = 0;  ///< Of `nodes`, for which this machine stands.
  int nodes = 1;
  int slots = 0;  ///< Of all of them.
};

/// `job`: of the run, or of an experiment, whose trials differ in nothing that matters here.
[[nodiscard]] core::AgentFacts local_facts(const job::JobSpec& job, const LocalPlace& place);

/// What every launcher with nodes in it does first: it is the parent of what its keepers leave, no reader that goes
/// away ends it, and buffers are used again.
[[nodiscard]] Status begin_locally();

/// Below the current folder as a relative path, as a person would type it.
[[nodiscard]] std::string as_typed(const std::string& directory);

/// The answer of a control socket to a request that is not carried out.
[[nodiscard]] nlohmann::ordered_json refused_request(const char* kind, std::string error);

}  // namespace sgd::cli
