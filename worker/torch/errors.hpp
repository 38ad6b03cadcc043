#pragma once
// What ends a rank besides an error of the user's: each type stands for one exit code.

#include <stdexcept>

namespace sgd::worker {

/// The job cannot run in this worker: worker_exit::kConfiguration.
class ConfigurationError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The machine failed us (I/O on our own files, the link): worker_exit::kEnvironment, retryable.
class EnvironmentError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// What ends this rank is another rank's fault, which that one tells: worker_exit::kPeerLost, never the cause.
class PeerFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace sgd::worker
