#pragma once
// Who of a generation is on which host, as all ranks agreed by one exchange. Hosts are numbered
// in the order of their nodes; rank 0 of a host (its local rank 0) is its leader.

#include <string>
#include <vector>

namespace sgd::worker {

struct RankPlace {
  int host = 0;        ///< Dense, 0 .. hosts-1.
  int local_rank = 0;  ///< Dense on its host.
};

struct Placement {
  std::vector<RankPlace> ranks;  ///< By global rank.
  std::vector<int> host_sizes;   ///< Ranks of each host.

  [[nodiscard]] int hosts() const { return static_cast<int>(host_sizes.size()); }
  /// Global rank of a place; it must exist.
  [[nodiscard]] int rank_at(int host, int local_rank) const;
};

/// The value that a rank gives to the exchange.
[[nodiscard]] std::string placement_value(int node_rank, int local_rank);
/// From every rank's value. Throws CollectiveSetupError when local ranks are not dense on each node.
[[nodiscard]] Placement read_placement(const std::vector<std::string>& values);

}  // namespace sgd::worker
