#pragma once
// What is true of one run, whatever its coordinator believes: its processes, its groups of ranks, its
// disk, and the ledger that its invariants are checked against.

#include <map>
#include <memory>
#include <vector>

#include "test/sim/disk.hpp"
#include "test/sim/group.hpp"
#include "test/sim/plan.hpp"
#include "test/sim/run_check.hpp"

namespace sgd::sim {

class Worker;

struct RunState {
  RunState(World& world, const RunPlan& its_plan) : plan(its_plan), check(world, its_plan) {}

  const RunPlan& plan;
  bool is_begun = true;  ///< Of a trial: that is recorded.
  Disk disk;
  RunCheck check;
  std::map<Generation, std::unique_ptr<Group>> groups;
  std::vector<std::unique_ptr<Group>> past_groups;  ///< Whose generation has come again.
  std::vector<Worker*> alive;                       ///< Processes of its ranks, on all nodes.
};

}  // namespace sgd::sim
