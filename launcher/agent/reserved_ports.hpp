#pragma once
// Ports of this node that wait for ranks of a command. Each is bound by a socket of this process that never listens:
// the system gives it to nobody who asks for any free port, and whoever sets SO_REUSEADDR, as rank 0's store does, may
// bind it beside us and listen, under any account. All addresses are taken, since a rank may listen on any of them.

#include <map>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::agent {

class ReservedPorts {
 public:
  /// In place of what the run had. Error: there are not so many, in words.
  [[nodiscard]] Result<std::vector<int>> reserve(const RunId& run, int count);
  /// The same for ports that are known. Error: somebody listens at one, or keeps it; the others are held.
  [[nodiscard]] Status hold(const RunId& run, const std::vector<int>& ports);
  void release(const RunId& run) { sockets_.erase(run); }

 private:
  std::map<RunId, std::vector<process::UniqueFd>> sockets_;
};

}  // namespace sgd::agent
