#include "test/sim/quota_check.hpp"

#include "launcher/core/quota.hpp"

namespace sgd::sim {

bool QuotaCheck::takes(const core::Coordinator& coordinator, const RunPlan& plan) const {
  if (!world_.plan.quota) return true;
  const core::OwnerQuota& quota = *world_.plan.quota;
  const std::string& owner = plan.definition.owner;
  std::size_t live = 0;
  std::size_t queued = 0;
  for (const auto& [run, waits] : live_) {
    if (runs_.at(run).plan.definition.owner != owner) continue;
    ++live;
    queued += waits ? 1 : 0;
  }
  const std::string why =
      core::why_not_taken(owner, plan.definition.priority, false, coordinator.load_of(owner), quota);
  const bool is_over = live >= quota.live_max || queued >= quota.queued_max;
  if (is_over != !why.empty())
    violated("{}: {} has {} live runs and {} in the queue, and the quota says \"{}\"", plan.definition.id, owner, live,
             queued, why);
  if (is_over) refused_.insert(plan.definition.id);
  if (!is_over) refused_.erase(plan.definition.id);
  return !is_over;
}

}  // namespace sgd::sim
