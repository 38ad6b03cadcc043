#pragma once
// When faults have stopped and everything has healed, every run must be finished, or at work at full size
// and getting on, within a bound that follows from its job's own timeouts.

#include <map>
#include <set>
#include <string>

#include "test/sim/cluster.hpp"

namespace sgd::sim {

class Liveness {
 public:
  Liveness(World& world, Cluster& cluster) : world_(world), cluster_(cluster) {}

  /// After the calm, now and then: true once all runs are well. Throws when one takes too long.
  [[nodiscard]] bool all_well();
  /// All runs are finished.
  [[nodiscard]] bool all_finished() const;
  /// From the calm on.
  [[nodiscard]] static Duration bound(const RunPlan& plan, int slots);
  [[nodiscard]] static Duration longest_epoch(const RunPlan& plan);

 private:
  [[nodiscard]] bool is_unwanted(const RunId& id, RunState& run);
  [[nodiscard]] std::string trouble_of(const RunId& id, RunState& run);
  void check_growth(const RunId& id, const RunState& run);
  [[nodiscard]] int room_for(const RunState& run);
  [[nodiscard]] bool others_wait(const RunId& id);
  [[nodiscard]] bool others_move(const RunId& id);
  [[nodiscard]] bool may_grow_at_once(const RunState& run, int world_size);

  World& world_;
  Cluster& cluster_;
  std::map<RunId, std::int64_t> steps_at_calm_;
  std::set<RunId> was_well_;               ///< With experiments: once, since the calm.
  std::map<RunId, TimePoint> room_since_;  ///< At work below its size, and slots are free.
};

}  // namespace sgd::sim
