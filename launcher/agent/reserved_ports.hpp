#pragma once
// Ports of this node that wait for ranks of a command. Each is bound by a socket of this process that never listens:
// the system gives it to nobody who asks for any free port, and whoever sets SO_REUSEADDR, as rank 0's store does, may
// bind it beside us and listen, under any account. Nothing keeps others from doing so before rank 0 does: it cannot
// bind it then, and who they are can be told. All addresses are taken, since a rank may listen on any of them.

#include <sys/types.h>

#include <map>
#include <string>
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
  void release(const RunId& run);
  /// Who listens at a port of the run's, and is neither `user` nor root, in words; empty: nobody, or it has none. Looks
  /// once, and says the same until there are other ports.
  [[nodiscard]] const std::string& taken_by(const RunId& run, uid_t user);

 private:
  std::map<RunId, std::vector<process::UniqueFd>> sockets_;
  std::map<RunId, std::string> takers_;  ///< As taken_by() has found.
};

}  // namespace sgd::agent
