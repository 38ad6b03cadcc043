#pragma once
// Which cores a rank may use: its own share of those the launcher may use.

#include <vector>

namespace sgd::core {

struct CpuShare {
  std::vector<int> cores;  ///< Empty: unbound, because the shares would overlap.
  bool exclusive = false;  ///< No other rank of this node has one of these cores.
};

/// Divides `allowed` into equal shares of at least `cpus_per_worker` cores, in order, so that neighbours
/// stay together. When the cores do not suffice nobody is bound.
[[nodiscard]] CpuShare cpu_share(const std::vector<int>& allowed, int local_rank, int local_world_size,
                                 int cpus_per_worker);

}  // namespace sgd::core
