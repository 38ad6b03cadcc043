#include "launcher/core/quota.hpp"

#include <fmt/format.h>

#include "common/base/bytes.hpp"

namespace sgd::core {

std::string why_not_taken(const std::string& owner, int priority, bool is_admin, const OwnerLoad& load,
                          const OwnerQuota& quota) {
  if (load.live_of_all >= quota.live_of_all_max)
    return fmt::format("{} runs are live, and the coordinator takes no more: try again when some have ended",
                       load.live_of_all);
  if (is_admin) return {};
  const std::string whose = owner.empty() ? "who gives no name" : owner;
  if (priority < quota.priority_least || priority > quota.priority_most)
    return fmt::format("\"priority\" {} is for admins: runs of {} may have {} to {}", priority, whose,
                       quota.priority_least, quota.priority_most);
  if (load.queued >= quota.queued_max)
    return fmt::format("{} runs of {} wait in the queue, and {} may: submit again when some have started, or stop some",
                       load.queued, whose, quota.queued_max);
  if (load.live >= quota.live_max)
    return fmt::format("{} runs of {} are live, and {} may be: submit again when some have ended", load.live, whose,
                       quota.live_max);
  if (quota.bytes_max > 0 && load.bytes >= quota.bytes_max)
    return fmt::format(
        "the runs of {} take {} of {}: sgd-launch runs list shows them, sgd-launch runs remove makes room", whose,
        format_bytes(load.bytes), format_bytes(quota.bytes_max));
  return {};
}

}  // namespace sgd::core
