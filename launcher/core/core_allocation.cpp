#include "launcher/core/core_allocation.hpp"

#include <algorithm>
#include <set>

#include "launcher/core/cpu_share.hpp"

namespace sgd::core {

void bind_cores(std::string_view how, const std::vector<std::vector<int>>& numa_nodes, std::vector<RankShare>& shares) {
  if (how != "none" && how != "numa") return;
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    const bool is_known = how == "numa" && !numa_nodes.empty();
    shares[rank].cores = is_known ? numa_nodes[rank * numa_nodes.size() / shares.size()] : std::vector<int>();
  }
}

std::vector<RankShare> CoreAllocation::allocate(const RunId& run, int ranks, const RankNeed& need, int slots) {
  held_.erase(run);
  std::vector<RankShare> shares(static_cast<std::size_t>(ranks));
  std::vector<int> cores = free_cores();
  if (is_shared_) {
    const int per_slot = static_cast<int>(cores_.size()) / std::max(slots, 1);
    const auto most = static_cast<std::size_t>(std::max(per_slot, need.cpus)) * static_cast<std::size_t>(ranks);
    if (cores.size() > most) cores.resize(most);
  }
  const std::vector<int> gpus = gpus_least_used_first();
  const std::size_t each = std::min(static_cast<std::size_t>(std::max(need.gpus.value_or(0), 0)), gpus.size());
  const bool deals_out = need.gpus && (each > 0 || *need.gpus == 0);
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    shares[rank].cores = cpu_share(cores, static_cast<int>(rank), ranks, need.cpus).cores;
    if (!deals_out) continue;
    std::vector<int>& own = shares[rank].gpus.emplace();
    for (std::size_t index = 0; index < each; ++index) own.push_back(gpus[(rank * each + index) % gpus.size()]);
    std::sort(own.begin(), own.end());
  }
  held_[run] = shares;
  if (!need.gpus && is_shared_ && !gpus_.empty())
    for (RankShare& share : shares) share.gpus = unowned_gpus();
  return shares;
}

std::vector<int> CoreAllocation::free_cores() const {
  std::set<int> taken;
  for (const auto& [run, shares] : held_)
    for (const RankShare& share : shares) taken.insert(share.cores.begin(), share.cores.end());
  std::vector<int> free;
  for (const int core : cores_)
    if (!taken.contains(core)) free.push_back(core);
  return free;
}

std::map<int, int> CoreAllocation::owners_of_gpus() const {
  std::map<int, int> owners;
  for (const auto& [run, shares] : held_)
    for (const RankShare& share : shares)
      for (const int gpu : share.gpus.value_or(std::vector<int>{})) ++owners[gpu];
  return owners;
}

/// Those that nobody has come first, in the order of the node.
std::vector<int> CoreAllocation::gpus_least_used_first() const {
  std::map<int, int> owners = owners_of_gpus();
  std::vector<int> order = gpus_;
  std::stable_sort(order.begin(), order.end(), [&owners](int a, int b) { return owners[a] < owners[b]; });
  return order;
}

std::vector<int> CoreAllocation::unowned_gpus() const {
  const std::map<int, int> owners = owners_of_gpus();
  std::vector<int> unowned;
  for (const int gpu : gpus_)
    if (!owners.contains(gpu)) unowned.push_back(gpu);
  return unowned;
}

}  // namespace sgd::core
