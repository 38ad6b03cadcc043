#pragma once
// Who runs where: how many ranks each node gets, and which. Gang-wise: all at once, or none.
//
// Nodes of the placement before keep their place in the order and, as far as there is room, their number of
// ranks: nothing moves that need not. What is left to place goes to nodes that are used already, then
//   pack:   to the smallest node that holds all of it, else to the largest, and so on: as few nodes as can
//   be; spread: to the node with the fewest ranks, one at a time. At another world size than before, spread
//   divides
//           everything anew, so that a run that shrinks or grows stays even.
// Of equal nodes the first by name. New nodes follow in the order of their names.

#include <string>
#include <vector>

#include <boost/container/flat_map.hpp>

#include "common/base/ids.hpp"
#include "common/job/spec.hpp"

namespace sgd::core {

struct NodePlace {
  NodeId node;
  std::vector<Rank> ranks;  ///< Dense and ascending; the index is the local rank.
};

struct Placement {
  int world_size = 0;            ///< 0: not placed.
  std::vector<NodePlace> nodes;  ///< Only nodes with ranks; the index is the node rank.
  int available = 0;             ///< Free slots of all nodes.
  std::string reason;            ///< Why not, in words: "2 slots wanted, 1 available".
};

/// By name, in one piece: with many nodes one of these is made for each run that waits.
using WorkersByNode = boost::container::flat_map<NodeId, int>;

/// world_size = min(num_workers, all room); not placed below `min_workers`. `rooms` counts workers, not
/// cores.
[[nodiscard]] Placement place(const WorkersByNode& rooms, int num_workers, int min_workers,
                              const Placement& before = {},
                              job::PlacementRules::Strategy strategy = job::PlacementRules::Strategy::kPack);

}  // namespace sgd::core
