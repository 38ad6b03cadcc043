#pragma once
// The signal that asks a rank for its training thread's stack (worker/torch/stack_trace.hpp), and
// the guard under which every other thread is started, so that it never takes that signal.

#include <pthread.h>

#include <csignal>

namespace sgd::worker {

inline constexpr int kStackSignal = SIGUSR2;

/// Blocks kStackSignal in this thread while it lives: threads started meanwhile have it blocked for good.
class StackSignalBlock {
 public:
  StackSignalBlock() {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, kStackSignal);
    (void)::pthread_sigmask(SIG_BLOCK, &blocked, &before_);
  }
  StackSignalBlock(const StackSignalBlock&) = delete;
  StackSignalBlock& operator=(const StackSignalBlock&) = delete;
  ~StackSignalBlock() { (void)::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace sgd::worker
