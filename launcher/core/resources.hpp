#pragma once
// What a node has and what workers take of it: for how many workers of a run there is room, and why for none.
//
// A worker takes one slot. Where cores count (NodeCapacity::counts_cpus: an agent without --slots) it also
// takes its cores; elsewhere slots were given on purpose, or the node is the launcher's own process, and
// cores may be shared. GPUs are always counted, memory where the node has said how much it has.

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include <boost/container/flat_map.hpp>

#include "common/base/ids.hpp"
#include "common/job/spec.hpp"

namespace sgd::core {

struct Resources {
  int slots = 0;
  int cpus = 0;
  int gpus = 0;
  std::int64_t memory_bytes = 0;
};

struct NodeCapacity {
  Resources total;
  Resources free;            ///< Not held by any run; below 0 where more is held than there is.
  bool counts_cpus = false;  ///< Else cores are not counted.
  std::map<std::string, std::string> labels;
  std::string out;  ///< Why no new rank may come, in words such as "drained"; empty: they may.
};

/// By name, in one piece: all nodes are looked at for each run that waits.
using Capacities = boost::container::flat_map<NodeId, NodeCapacity>;

/// GPUs of a node that a run does without.
struct LeftOutGpus {
  int all = 0;
  int free = 0;  ///< Of them: not known to be held by another run, so they may be among those that are free.
};

/// What a run asks for.
struct Demand {
  int num_workers = 1;
  int least = 1;  ///< Fewest workers that it starts with.
  job::PerWorker per_worker;
  job::PlacementRules rules;
  std::map<NodeId, LeftOutGpus> left_out = {};
  std::set<NodeId> refusing = {};  ///< Nodes that could not begin with it.
};

/// `workers` workers more hold what is free there; negative: fewer.
void take(Resources& free, const job::PerWorker& per_worker, int workers);
/// Workers of this demand that have room in `free`, on a node with these rules or none.
[[nodiscard]] int room(const NodeId& node, const NodeCapacity& capacity, const Demand& demand);
/// As room(), were everything on it free. 0: waiting for this node is of no use.
[[nodiscard]] int room_when_idle(const NodeId& node, const NodeCapacity& capacity, const Demand& demand);
/// Why there is no room, in words: "excluded", "0 of 4 slots free", "label gpu is a100, h100 wanted"; empty:
/// there is.
[[nodiscard]] std::string why_no_room(const NodeId& node, const NodeCapacity& capacity, const Demand& demand);

}  // namespace sgd::core
