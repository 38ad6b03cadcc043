#pragma once
// Ports of this node that wait for rank 0 of a command. Each is bound by a socket of this process that never listens:
// the system gives it to nobody who asks for any free port, and whoever sets SO_REUSEADDR, as rank 0's store does, may
// bind it beside us and listen, under any account. All addresses are taken, since a rank may listen on any of them.

#include <map>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::agent {

class ReservedPorts {
 public:
  /// In place of what the run had. Error: there is none, in words.
  [[nodiscard]] Result<int> reserve(const RunId& run);
  /// The same for a port that is known. Error: somebody listens there, or keeps it.
  [[nodiscard]] Status hold(const RunId& run, int port);
  void release(const RunId& run) { sockets_.erase(run); }

 private:
  std::map<RunId, process::UniqueFd> sockets_;
};

}  // namespace sgd::agent
