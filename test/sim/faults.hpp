#pragma once
// Makes things go wrong, each kind at its own rate, until the trouble of the plan is over; then everything
// heals within kHealing.

#include "test/sim/cluster.hpp"

namespace sgd::sim {

class Faults {
 public:
  Faults(World& world, Cluster& cluster) : world_(world), cluster_(cluster) {}
  void begin();

 private:
  void plan_next(Fault fault);
  /// False: there is nothing that it could happen to.
  bool inject(Fault fault);
  bool to_rank(Fault fault);
  bool to_node(Fault fault);
  bool to_link(Fault fault);
  bool to_keeper(Fault fault);
  void stop_experiments();
  bool stop_a_run();
  bool change_slots();
  bool give_order();
  bool end_a_node();
  void reset_slots(const NodeId& node);
  [[nodiscard]] Worker* any_worker();

  World& world_;
  Cluster& cluster_;
};

}  // namespace sgd::sim
