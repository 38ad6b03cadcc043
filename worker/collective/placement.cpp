#include "worker/collective/placement.hpp"

#include <charconv>
#include <map>
#include <set>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "worker/collective/factory.hpp"

namespace sgd::worker {
namespace {

struct NodePlace {
  int node = -1, local_rank = -1;
};

NodePlace parse(int rank, const std::string& value) {
  NodePlace place;
  const char* const end = value.data() + value.size();
  const auto node = std::from_chars(value.data(), end, place.node);
  if (node.ec == std::errc() && node.ptr != end && *node.ptr == ':') {
    const auto local = std::from_chars(node.ptr + 1, end, place.local_rank);
    if (local.ec == std::errc() && local.ptr == end && place.node >= 0 && place.local_rank >= 0) return place;
  }
  throw CollectiveSetupError(fmt::format("rank {} gave the placement '{}', not NODE:LOCAL_RANK", rank, value));
}

}  // namespace

int Placement::rank_at(int host, int local_rank) const {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].host == host && ranks[rank].local_rank == local_rank) return static_cast<int>(rank);
  }
  SGD_ASSERT(false);
  return -1;
}

std::string placement_value(int node_rank, int local_rank) {
  return fmt::format("{}:{}", node_rank, local_rank);
}

Placement read_placement(const std::vector<std::string>& values) {
  std::vector<NodePlace> places;
  std::map<int, std::set<int>> local_ranks;  // By node.
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    places.push_back(parse(static_cast<int>(rank), values[rank]));
    if (!local_ranks[places.back().node].insert(places.back().local_rank).second) {
      throw CollectiveSetupError(
          fmt::format("two ranks are local rank {} of node {}", places.back().local_rank, places.back().node));
    }
  }
  Placement placement;
  std::map<int, int> host_of_node;
  for (const auto& [node, locals] : local_ranks) {
    const auto size = static_cast<int>(locals.size());
    if (*locals.rbegin() != size - 1) {
      throw CollectiveSetupError(
          fmt::format("node {} has {} ranks, and one of them is local rank {}", node, size, *locals.rbegin()));
    }
    host_of_node[node] = placement.hosts();
    placement.host_sizes.push_back(size);
  }
  for (const NodePlace& place : places) placement.ranks.push_back({host_of_node[place.node], place.local_rank});
  return placement;
}

}  // namespace sgd::worker
