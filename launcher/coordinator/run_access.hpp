#pragma once
// Which nodes may touch a run's files: those that were given a rank of it. The record is `nodes.jsonl` in the run's own
// folder, a line for each node, so that it lasts as long as the files do, whatever the machine and the store have
// forgotten; no node can write to it. What is not in it may not: unknown means no.

#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"

namespace sgd::coordinator {

class RunAccess {
 public:
  /// Runs whose record is kept in memory; of others it is read again.
  static constexpr std::size_t kRunsMax = 4096;

  /// A run that is new: it has no record.
  void begin(const RunId& run) { (void)remember(run); }
  /// Few will ask: its record is read again then.
  void forget(const RunId& run);
  /// Before the node is told of its rank.
  void admit(const RunId& run, const std::string& run_dir, const NodeId& node);
  /// All that was admitted since, a write for each run, however many nodes it has got: `write` may be called on another
  /// thread, in its turn among the run's records. What it cannot write is lost with this process.
  void flush(const std::function<void(const RunId& run, std::function<Status()> write)>& hand_over);
  [[nodiscard]] bool may_touch(const RunId& run, const std::string& run_dir, const NodeId& node) {
    return nodes_of(run, run_dir).contains(node);
  }
  [[nodiscard]] const std::set<NodeId>& nodes_of(const RunId& run, const std::string& run_dir);

 private:
  [[nodiscard]] std::set<NodeId>& remember(const RunId& run);
  struct Addition {
    std::string path;   ///< Of the record.
    std::string lines;  ///< After what is there.
  };
  std::map<RunId, std::set<NodeId>> known_;
  std::set<RunId> torn_;  ///< Of known_: their record does not end with a whole line.
  std::map<RunId, Addition> added_;
  std::deque<RunId> order_;  ///< Of known_, as they were read.
};

}  // namespace sgd::coordinator
