#include "launcher/core/placement.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace sgd::core {
namespace {

std::vector<NodeId> order_of(const std::map<NodeId, int>& free_slots, const Placement& before) {
  std::vector<NodeId> order;
  for (const NodePlace& place : before.nodes)
    if (free_slots.contains(place.node)) order.push_back(place.node);
  for (const auto& [node, slots] : free_slots)
    if (std::find(order.begin(), order.end(), node) == order.end()) order.push_back(node);
  return order;
}

/// How many ranks each node gets: first what it had, then what is left of its slots.
std::map<NodeId, int> count_ranks(const std::map<NodeId, int>& free_slots, int world_size, const Placement& before) {
  std::map<NodeId, int> counts;
  for (const auto& [node, slots] : free_slots) counts[node] = 0;
  int left = world_size;
  for (const NodePlace& place : before.nodes) {
    const auto slots = free_slots.find(place.node);
    if (slots == free_slots.end()) continue;
    const int kept = std::min({static_cast<int>(place.ranks.size()), slots->second, left});
    counts[place.node] = kept;
    left -= kept;
  }
  for (const NodeId& node : order_of(free_slots, before)) {
    const int more = std::min(free_slots.at(node) - counts[node], left);
    counts[node] += more;
    left -= more;
  }
  return counts;
}

}  // namespace

Placement place(const std::map<NodeId, int>& free_slots, int num_workers, int min_workers, const Placement& before) {
  Placement placement;
  for (const auto& [node, slots] : free_slots) placement.available += slots;
  const int world_size = std::min(num_workers, placement.available);
  if (world_size < std::max(min_workers, 1)) {
    placement.reason = fmt::format("{} slot{} wanted, {} available", min_workers, min_workers == 1 ? "" : "s",
                                   placement.available);
    return placement;
  }
  const std::map<NodeId, int> counts = count_ranks(free_slots, world_size, before);
  Rank next = 0;
  for (const NodeId& node : order_of(free_slots, before)) {
    NodePlace here{node, {}};
    for (int count = counts.at(node); count > 0; --count) here.ranks.push_back(next++);
    if (!here.ranks.empty()) placement.nodes.push_back(std::move(here));
  }
  placement.world_size = world_size;
  placement.reason = fmt::format("{} of {} workers placed", world_size, num_workers);
  return placement;
}

}  // namespace sgd::core
