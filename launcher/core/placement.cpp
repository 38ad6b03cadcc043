#include "launcher/core/placement.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace sgd::core {

Placement place(const std::map<NodeId, int>& free_slots, int num_workers, int min_workers) {
  Placement placement;
  for (const auto& [node, slots] : free_slots) placement.available += slots;
  const int world_size = std::min(num_workers, placement.available);
  if (world_size < std::max(min_workers, 1)) {
    placement.reason = fmt::format("{} slot{} wanted, {} available", min_workers, min_workers == 1 ? "" : "s",
                                   placement.available);
    return placement;
  }
  Rank next = 0;
  for (const auto& [node, slots] : free_slots) {
    NodePlace here{node, {}};
    while (static_cast<int>(here.ranks.size()) < slots && next < world_size) here.ranks.push_back(next++);
    if (!here.ranks.empty()) placement.nodes.push_back(std::move(here));
  }
  placement.world_size = world_size;
  placement.reason = fmt::format("{} of {} workers placed", world_size, num_workers);
  return placement;
}

}  // namespace sgd::core
