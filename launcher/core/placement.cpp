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
struct Seat {
  const NodeId* node;
  int room;
  int before;  ///< Ranks that it had.
  int count = 0;
};
using Seats = std::vector<Seat>;

Seats seats_of(const WorkersByNode& rooms, const Placement& before) {
  Seats seats;
  seats.reserve(rooms.size());
  std::set<NodeId> placed;
  for (const NodePlace& place : before.nodes) {
    const auto room = rooms.find(place.node);
    if (room == rooms.end() || !placed.insert(place.node).second) continue;
    seats.push_back({&room->first, room->second, static_cast<int>(place.ranks.size())});
  }
  for (const auto& [node, room] : rooms)
    if (placed.empty() || !placed.contains(node)) seats.push_back({&node, room, 0});
  return seats;
}

/// Gives nodes what they had, as far as there is room; what is left to place.
int keep(Seats& seats, int left) {
  for (Seat& seat : seats) {
    seat.count = std::min({seat.before, seat.room, left});
    left -= seat.count;
  }
  return left;
}

void give(Seat& seat, int& left) {
  const int more = std::min(seat.room - seat.count, left);
  seat.count += more;
  left -= more;
}

void pack(Seats& seats, int left) {
  for (Seat& seat : seats)
    if (seat.before > 0) give(seat, left);
  if (left == 0) return;
  std::map<int, std::deque<Seat*>> unused;  // By room; of equal rooms by name.
  for (Seat& seat : seats)
    if (seat.room > 0 && seat.count == 0) unused[seat.room].push_back(&seat);
  while (left > 0 && !unused.empty()) {
    auto chosen = unused.lower_bound(left);
    if (chosen == unused.end()) --chosen;
    give(*chosen->second.front(), left);
    chosen->second.pop_front();
    if (chosen->second.empty()) unused.erase(chosen);
  }
}

void spread(Seats& seats, int left) {
  std::set<std::pair<int, std::size_t>> open;  // Ranks so far, place in the order.
  for (std::size_t place = 0; place < seats.size(); ++place)
    if (seats[place].count < seats[place].room) open.emplace(seats[place].count, place);
  for (; left > 0 && !open.empty(); --left) {
    const auto [ranks, place] = *open.begin();
    open.erase(open.begin());
    seats[place].count = ranks + 1;
    if (ranks + 1 < seats[place].room) open.emplace(ranks + 1, place);
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
  Seats seats = seats_of(rooms, before);
  const bool is_even = strategy == Strategy::kSpread;
  const bool divides_anew = is_even && before.world_size != world_size;
  const int left = divides_anew ? world_size : keep(seats, world_size);
  if (is_even) spread(seats, left);
  if (!is_even) pack(seats, left);
  Rank next = 0;
  for (const Seat& seat : seats) {
    if (seat.count == 0) continue;
    NodePlace& here = placement.nodes.emplace_back(NodePlace{*seat.node, {}});
    for (int rank = 0; rank < seat.count; ++rank) here.ranks.push_back(next++);
  }
  placement.world_size = world_size;
  placement.reason = fmt::format("{} of {} workers placed", world_size, num_workers);
  return placement;
}

}  // namespace sgd::core
