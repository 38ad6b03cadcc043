#pragma once
// The run that a transcript submits.

#include "launcher/core/coordinator_io.hpp"
#include "test/scenario/words.hpp"

namespace sgd::test {

/// submit workers=N min_workers=N kind=training|command max_failures=N|unlimited first=D factor=N attempts=N
///        cooldown=D scale_up=epoch|checkpoint start=elastic heartbeat=D stall=D placement_timeout=D fork_server=0|1
///        shutdown=D backend=tensorflow|horovod gpus=N exclude_after=N
[[nodiscard]] core::RunDefinition job_of(const Words& words);

}  // namespace sgd::test
