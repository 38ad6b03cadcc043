#pragma once
// A node of this machine, in this process: what an agent beside its coordinator is told of where it runs.

#include "common/base/result.hpp"
#include "common/job/spec.hpp"
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

}  // namespace sgd::cli
