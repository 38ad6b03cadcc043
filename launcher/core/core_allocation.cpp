#include "launcher/core/core_allocation.hpp"

#include <algorithm>
#include <set>

#include "common/json/lenient.hpp"
#include "launcher/core/cpu_share.hpp"

namespace sgd::core {

void bind_cores(std::string_view how, const std::vector<std::vector<int>>& numa_nodes, std::vector<RankShare>& shares) {
  if (how != "none" && how != "numa") return;
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    const bool is_known = how == "numa" && !numa_nodes.empty();
    shares[rank].cores = is_known ? numa_nodes[rank * numa_nodes.size() / shares.size()] : std::vector<int>();
  }
}

RankNeed need_of(const nlohmann::json& job) {
  const nlohmann::json& per_worker = job.at("per_worker");
  const nlohmann::json& process = member(job, "process");
  RankNeed need;
  need.cpus = per_worker.at("cpus").get<int>();
  if (const auto gpus = per_worker.find("gpus"); gpus != per_worker.end()) need.gpus = gpus->get<int>();
  const std::string seen = read_or(process, "gpu_visibility", "auto");
  if (seen == "own" || read_or(process, "virtual_local_rank", false)) need.visibility = Visibility::kOwn;
  if (seen == "node") need.visibility = Visibility::kNode;
  return need;
}

bool are_parts(const GpuNames& gpus) {
  return std::any_of(gpus.begin(), gpus.end(), [](const std::string& name) { return name.starts_with("MIG-"); });
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
  for (std::size_t rank = 0; rank < shares.size(); ++rank)
    shares[rank].cores = cpu_share(cores, static_cast<int>(rank), ranks, need.cpus).cores;
  if (need.gpus) {
    deal_out(run, shares, static_cast<std::size_t>(std::max(*need.gpus, 0)), need.visibility);
  } else if (!gpus_.empty()) {
    for (RankShare& share : shares) share.visible = unowned_gpus();
  }
  held_[run] = shares;
  return shares;
}

void CoreAllocation::deal_out(const RunId& run, std::vector<RankShare>& shares, std::size_t each,
                              Visibility visibility) const {
  const GpuNames gpus = in_order_of_node(gpus_least_used_first(run), shares.size() * each);
  each = std::min(each, gpus.size());
  GpuNames all;
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    for (std::size_t index = 0; index < each; ++index)
      shares[rank].gpus.push_back(gpus[(rank * each + index) % gpus.size()]);
    all.insert(all.end(), shares[rank].gpus.begin(), shares[rank].gpus.end());
  }
  // A device that ranks must share would stand in the list twice, which CUDA does not take.
  const bool cannot_see_all = are_parts(all) || all.size() > gpus.size();
  const bool sees_own =
      visibility == Visibility::kOwn || cannot_see_all || (visibility == Visibility::kAuto && each != 1);
  for (RankShare& share : shares) share.visible = sees_own ? share.gpus : all;
}

/// The first `count` of `gpus`, as they stand in the node's list: neighbours there are often neighbours on a bus.
GpuNames CoreAllocation::in_order_of_node(GpuNames gpus, std::size_t count) const {
  if (gpus.size() > count) gpus.resize(count);
  const auto place = [this](const std::string& name) { return std::find(gpus_.begin(), gpus_.end(), name); };
  std::sort(gpus.begin(), gpus.end(), [&place](const auto& a, const auto& b) { return place(a) < place(b); });
  return gpus;
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

std::map<std::string, int> CoreAllocation::owners_of_gpus() const {
  std::map<std::string, int> owners;
  for (const auto& [run, shares] : held_)
    for (const RankShare& share : shares)
      for (const std::string& gpu : share.gpus) ++owners[gpu];
  return owners;
}

void CoreAllocation::leave_out(const RunId& run, const GpuNames& gpus) {
  if (gpus.empty()) {
    left_out_.erase(run);
  } else {
    left_out_[run] = gpus;
  }
}

bool CoreAllocation::leaves_out(const RunId& run, const std::string& gpu) const {
  const auto its = left_out_.find(run);
  return its != left_out_.end() && std::find(its->second.begin(), its->second.end(), gpu) != its->second.end();
}

/// Those that nobody has come first, and of them those that other runs here do without; in the order of the node.
GpuNames CoreAllocation::gpus_least_used_first(const RunId& run) const {
  const std::map<std::string, int> owners = owners_of_gpus();
  std::map<std::string, std::pair<int, bool>> places;
  GpuNames order;
  for (const std::string& gpu : gpus_) {
    if (leaves_out(run, gpu)) continue;
    const bool is_spared = std::any_of(left_out_.begin(), left_out_.end(),
                                       [&](const auto& other) { return leaves_out(other.first, gpu); });
    const auto owned = owners.find(gpu);
    places[gpu] = {owned == owners.end() ? 0 : owned->second, !is_spared};
    order.push_back(gpu);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&places](const std::string& a, const std::string& b) { return places[a] < places[b]; });
  return order;
}

GpuNames CoreAllocation::unowned_gpus() const {
  const std::map<std::string, int> owners = owners_of_gpus();
  GpuNames unowned;
  for (const std::string& gpu : gpus_)
    if (!owners.contains(gpu)) unowned.push_back(gpu);
  return unowned;
}

}  // namespace sgd::core
