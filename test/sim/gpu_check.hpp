#pragma once
// GPUs that break under ranks: each rank has one of its own, which nobody else has; one that was the cause of as many
// restarts as its run allows is told of then, and the run does not get it any more. Who is to blame is known from what
// has broken, not from what anybody says.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "common/json/nlohmann.hpp"
#include "test/sim/worker.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class GpuCheck {
 public:
  void on_process_start(std::map<RunId, RunState>& runs, const RunState& run, Node& node,
                        const Worker::Identity& identity);
  /// It ends, since its GPU has failed.
  void on_broken(const RunState& run, const Worker::Identity& identity);
  void on_event(const RunState& run, const nlohmann::ordered_json& event);
  /// What is counted here is not what the coordinator counts any more.
  void forget() { has_forgotten_ = true; }
  [[nodiscard]] bool has_forgotten() const { return has_forgotten_; }
  /// GPUs of a node that this run does without, but for those that processes of other runs have.
  [[nodiscard]] int left_out(std::map<RunId, RunState>& runs, const RunState& run, const Node& node) const;

 private:
  using Gpu = std::pair<NodeId, std::string>;
  struct Ledger {
    std::map<std::pair<Generation, Rank>, Gpu> has;  ///< Of each rank that was started.
    std::set<std::pair<Generation, Rank>> broken;    ///< Ranks that have ended by it.
    std::map<Gpu, int> restarts;                     ///< Of which it was the cause.
    std::map<Gpu, Generation> left_out;              ///< After that generation.
    std::optional<std::tuple<Gpu, int>> to_be_told;  ///< By the next event.
  };
  void on_failure(const RunState& run, Ledger& ledger, const nlohmann::ordered_json& event);

  std::map<RunId, Ledger> ledgers_;
  bool has_forgotten_ = false;
};

}  // namespace sgd::sim
