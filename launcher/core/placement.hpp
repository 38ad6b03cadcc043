#pragma once
// Who runs where: how many workers the free slots hold, and which ranks each node gets.

#include <map>
#include <string>
#include <vector>

#include "common/base/ids.hpp"

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

/// world_size = min(num_workers, free slots); not placed below `min_workers`. `free_slots` counts workers, not
/// cores. A node of `before` keeps its place in the order and, as far as slots allow, its number of ranks; other
/// nodes follow in the order of their names.
[[nodiscard]] Placement place(const std::map<NodeId, int>& free_slots, int num_workers, int min_workers,
                              const Placement& before = {});

}  // namespace sgd::core
