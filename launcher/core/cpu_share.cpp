#include "launcher/core/cpu_share.hpp"

#include "common/base/assert.hpp"

namespace sgd::core {

CpuShare cpu_share(const std::vector<int>& allowed, int local_rank, int local_world_size, int cpus_per_worker) {
  SGD_ASSERT(local_world_size > 0 && local_rank >= 0 && local_rank < local_world_size);
  const int share = static_cast<int>(allowed.size()) / local_world_size;
  if (share < cpus_per_worker || share == 0) return {};
  const auto first = allowed.begin() + static_cast<std::ptrdiff_t>(local_rank) * share;
  return {{first, first + share}, true};
}

}  // namespace sgd::core
