#pragma once
// The program behind the hidden verb `sgd-launch callback`: feeds one program of a job's callbacks and answers for its
// end. One process a program, so that the launcher waits for none of them; it outlives a launcher that was killed by as
// long as it takes to give the program what is written and to end it with everything that it has started.
//
//   launcher ── socket (nudges, "e": the run has ended; its end: the launcher is gone) ──> guard ── pipe ──> program
//      ^────────────────────── what people should know ──────────────────────┘ └── reads the run's files
//
// A program that ends, that reads nothing for its time-out, or that is not done so long after the run, is told of, with
// how many lines it has not had.

#include <string>
#include <vector>

namespace sgd::callbacks {

/// `words`: the run's folder, the callback's place in its job, the run's id. The launcher's socket is descriptor 3.
/// Returns the exit status: 0, or 2 when it was not started by sgd-launch.
[[nodiscard]] int exec_guard_main(const std::vector<std::string>& words);

}  // namespace sgd::callbacks
