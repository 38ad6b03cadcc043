#pragma once
// `sgd-launch --nnodes N ...` on each of several machines, with nothing installed as a service:
//
//   first machine:  coordinator + agent as children · waits for the others · submits the job, and follows it to its end
//   others:         an agent as a child · wait for the end of the run, and leave with its exit code
//
// The children end with their launcher, however that one ends; one of them that dies is started again, and the run goes
// on.

#include "common/json/diagnostics.hpp"
#include "launcher/cli/run_options.hpp"

namespace sgd::cli {

/// By the plan in `options`. The run's exit code; after errors, those in `found` and the job's, kUsage.
[[nodiscard]] int run_on_several_nodes(RunOptions options, Diagnostics found);

}  // namespace sgd::cli
