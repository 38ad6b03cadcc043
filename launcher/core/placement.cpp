#include "launcher/core/placement.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace sgd::core {
namespace {

using Strategy = job::PlacementRules::Strategy;
using Counts = std::map<NodeId, int>;

std::vector<NodeId> order_of(const Counts& rooms, const Placement& before) {
  std::vector<NodeId> order;
  for (const NodePlace& place : before.nodes)
    if (rooms.contains(place.node)) order.push_back(place.node);
  const std::set<NodeId> placed(order.begin(), order.end());
  for (const auto& [node, room] : rooms)
    if (!placed.contains(node)) order.push_back(node);
  return order;
}

/// Gives nodes what they had, as far as there is room; what is left to place.
int keep(const Counts& rooms, const Placement& before, int left, Counts& counts) {
  for (const NodePlace& place : before.nodes) {
    const auto room = rooms.find(place.node);
    if (room == rooms.end()) continue;
    const int kept = std::min({static_cast<int>(place.ranks.size()), room->second, left});
    counts[place.node] = kept;
    left -= kept;
  }
  return left;
}

void give(const NodeId& node, const Counts& rooms, Counts& counts, int& left) {
  const int more = std::min(rooms.at(node) - counts[node], left);
  counts[node] += more;
  left -= more;
}

void pack(const Counts& rooms, const Placement& before, Counts& counts, int left) {
  for (const NodePlace& place : before.nodes)
    if (rooms.contains(place.node)) give(place.node, rooms, counts, left);
  std::set<std::pair<int, NodeId>>
      unused;  // Ascending by room; the last of equal rooms is found by its name.
  for (const auto& [node, room] : rooms)
    if (room > 0 && counts[node] == 0) unused.emplace(room, node);
  while (left > 0 && !unused.empty()) {
    auto chosen = unused.lower_bound({left, NodeId{}});
    if (chosen == unused.end()) chosen = unused.lower_bound({unused.rbegin()->first, NodeId{}});
    give(chosen->second, rooms, counts, left);
    unused.erase(chosen);
  }
}

void spread(const Counts& rooms, const std::vector<NodeId>& order, Counts& counts, int left) {
  std::set<std::pair<int, std::size_t>> open;  // Ranks so far, place in the order.
  for (std::size_t place = 0; place < order.size(); ++place)
    if (counts[order[place]] < rooms.at(order[place])) open.emplace(counts[order[place]], place);
  for (; left > 0 && !open.empty(); --left) {
    const auto [ranks, place] = *open.begin();
    open.erase(open.begin());
    counts[order[place]] = ranks + 1;
    if (ranks + 1 < rooms.at(order[place])) open.emplace(ranks + 1, place);
  }
}

}  // namespace

Placement place(const std::map<NodeId, int>& rooms, int num_workers, int min_workers, const Placement& before,
                Strategy strategy) {
  Placement placement;
  for (const auto& [node, room] : rooms) placement.available += room;
  const int world_size = std::min(num_workers, placement.available);
  if (world_size < std::max(min_workers, 1)) {
    placement.reason = fmt::format("{} slot{} wanted, {} available", min_workers, min_workers == 1 ? "" : "s",
                                   placement.available);
    return placement;
  }
  Counts counts;
  const std::vector<NodeId> order = order_of(rooms, before);
  const bool is_even = strategy == Strategy::kSpread;
  const bool divides_anew = is_even && before.world_size != world_size;
  const int left = divides_anew ? world_size : keep(rooms, before, world_size, counts);
  if (is_even) spread(rooms, order, counts, left);
  if (!is_even) pack(rooms, before, counts, left);
  Rank next = 0;
  for (const NodeId& node : order) {
    NodePlace here{node, {}};
    for (int count = counts[node]; count > 0; --count) here.ranks.push_back(next++);
    if (!here.ranks.empty()) placement.nodes.push_back(std::move(here));
  }
  placement.world_size = world_size;
  placement.reason = fmt::format("{} of {} workers placed", world_size, num_workers);
  return placement;
}

}  // namespace sgd::core
