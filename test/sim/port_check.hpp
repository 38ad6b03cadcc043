#pragma once
// Where the ranks of a command meet: every rank of a generation is told the same port, rank 0's node has reserved it
// for that generation, and its agent keeps it when rank 0 starts. Where each rank has a port, the same is so of each.

#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "common/json/nlohmann.hpp"
#include "test/sim/worker.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class PortCheck {
 public:
  /// One that nobody has had.
  [[nodiscard]] int reserve(const NodeId& node, const RunId& run, Generation generation);
  void on_process_start(const RunState& run, Node& node, const Worker::Identity& identity);

 private:
  void check_kept(const RunState& run, Node& node, const Worker::Identity& identity, const std::string& place) const;
  void check_workers(const RunState& run, Node& node, const Worker::Identity& identity);

  int newest_ = 1023;
  std::map<std::tuple<RunId, Generation, std::string>, NodeId> reserved_;  ///< By address and port.
  std::map<std::pair<RunId, Generation>, std::string> told_;               ///< Ranks that have started.
  std::map<std::pair<RunId, Generation>, nlohmann::json> workers_;         ///< Of all ranks, as they were told.
};

}  // namespace sgd::sim
