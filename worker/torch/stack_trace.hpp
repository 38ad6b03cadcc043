#pragma once
// On kStackSignal the training thread appends its stack, with time, step and phase, to a file of
// the run: what a rank did that made no progress. Training goes on undisturbed: the handler only
// makes calls that are safe in one, and interrupted system calls are restarted.

#include <string>

#include "common/base/ids.hpp"
#include "worker/link/progress.hpp"

namespace sgd::worker {

/// Until tracing starts the signal is ignored; its default would end the process.
void ignore_stack_signal();

/// Answers the signal from construction to destruction; made by the training thread. One at a time.
class StackTracing {
 public:
  /// Writes to <run_dir>/errors/gen-0001-rank-0000.stack. `progress` outlives this object.
  StackTracing(const std::string& run_dir, Generation generation, Rank rank, const Progress& progress);
  StackTracing(const StackTracing&) = delete;
  StackTracing& operator=(const StackTracing&) = delete;
  ~StackTracing();
};

}  // namespace sgd::worker
