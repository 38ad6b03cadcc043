#include "launcher/core/placement.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <set>

#include <fmt/format.h>

namespace sgd::core {
namespace {

using Strategy = job::PlacementRules::Strategy;

/// What a node has and gets. In the order of the placement: nodes of the one before first, then by name.
struct Candidate {
  const NodeId* node;
  int room;
  int before;  ///< Ranks that it had.
  int count = 0;
};
using Candidates = std::vector<Candidate>;

Candidates candidates_of(const WorkersByNode& rooms, const Placement& before) {
  Candidates candidates;
  candidates.reserve(rooms.size());
  std::set<NodeId> placed;
  for (const NodePlace& place : before.nodes) {
    const auto room = rooms.find(place.node);
    if (room == rooms.end() || !placed.insert(place.node).second) continue;
    candidates.push_back({&room->first, room->second, static_cast<int>(place.ranks.size())});
  }
  for (const auto& [node, room] : rooms)
    if (placed.empty() || !placed.contains(node)) candidates.push_back({&node, room, 0});
  return candidates;
}

/// Gives nodes what they had, as far as there is room; what is left to place.
int keep(Candidates& candidates, int left) {
  for (Candidate& candidate : candidates) {
    candidate.count = std::min({candidate.before, candidate.room, left});
    left -= candidate.count;
  }
  return left;
}

void give(Candidate& candidate, int& left) {
  const int more = std::min(candidate.room - candidate.count, left);
  candidate.count += more;
  left -= more;
}

void pack(Candidates& candidates, int left) {
  for (Candidate& candidate : candidates)
    if (candidate.before > 0) give(candidate, left);
  if (left == 0) return;
  std::map<int, std::deque<Candidate*>> unused;  // By room; of equal rooms by name.
  for (Candidate& candidate : candidates)
    if (candidate.room > 0 && candidate.count == 0) unused[candidate.room].push_back(&candidate);
  while (left > 0 && !unused.empty()) {
    auto chosen = unused.lower_bound(left);
    if (chosen == unused.end()) --chosen;
    give(*chosen->second.front(), left);
    chosen->second.pop_front();
    if (chosen->second.empty()) unused.erase(chosen);
  }
}

void spread(Candidates& candidates, int left) {
  std::set<std::pair<int, std::size_t>> open;  // Ranks so far, place in the order.
  for (std::size_t place = 0; place < candidates.size(); ++place)
    if (candidates[place].count < candidates[place].room) open.emplace(candidates[place].count, place);
  for (; left > 0 && !open.empty(); --left) {
    const auto [ranks, place] = *open.begin();
    open.erase(open.begin());
    candidates[place].count = ranks + 1;
    if (ranks + 1 < candidates[place].room) open.emplace(ranks + 1, place);
  }
}

}  // namespace

Placement place(const WorkersByNode& rooms, int num_workers, int min_workers, const Placement& before,
                Strategy strategy) {
  Placement placement;
  std::int64_t available = 0;
  for (const auto& [node, room] : rooms) available += room;
  placement.available = static_cast<int>(std::min<std::int64_t>(available, std::numeric_limits<int>::max()));
  const int world_size = std::min(num_workers, placement.available);
  if (world_size < std::max(min_workers, 1)) {
    placement.reason =
        fmt::format("{} slot{} wanted, {} available", min_workers, min_workers == 1 ? "" : "s", placement.available);
    return placement;
  }
  Candidates candidates = candidates_of(rooms, before);
  const bool is_even = strategy == Strategy::kSpread;
  const bool divides_anew = is_even && before.world_size != world_size;
  const int left = divides_anew ? world_size : keep(candidates, world_size);
  if (is_even) spread(candidates, left);
  if (!is_even) pack(candidates, left);
  Rank next = 0;
  for (const Candidate& candidate : candidates) {
    if (candidate.count == 0) continue;
    NodePlace& here = placement.nodes.emplace_back(NodePlace{*candidate.node, {}});
    for (int rank = 0; rank < candidate.count; ++rank) here.ranks.push_back(next++);
  }
  placement.world_size = world_size;
  placement.reason = fmt::format("{} of {} workers placed", world_size, num_workers);
  return placement;
}

}  // namespace sgd::core
