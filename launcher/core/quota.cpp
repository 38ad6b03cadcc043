#include "launcher/core/quota.hpp"

#include <fmt/format.h>

#include "common/base/bytes.hpp"

namespace sgd::core {
namespace {

std::string named(const std::string& owner) {
  return owner.empty() ? "who gives no name" : owner;
}

}  // namespace

std::string why_no_bytes(const std::string& owner, std::int64_t bytes, std::int64_t limit) {
  return fmt::format("the runs of {} take {} of {}: sgd-launch runs list shows them, sgd-launch runs remove makes room",
                     named(owner), format_bytes(bytes), format_bytes(limit));
}

std::string why_not_taken(const std::string& owner, int priority, bool is_admin, const OwnerLoad& load,
                          const OwnerQuota& quota) {
  if (load.live_of_all >= quota.live_of_all_max)
    return fmt::format("{} runs are live, and the coordinator takes no more: try again when some have ended",
                       load.live_of_all);
  if (is_admin) return {};
  const std::string whose = named(owner);
  if (priority < quota.priority_least || priority > quota.priority_most)
    return fmt::format("\"priority\" {} is for admins: runs of {} may have {} to {}", priority, whose,
                       quota.priority_least, quota.priority_most);
  if (load.queued >= quota.queued_max)
    return fmt::format("{} runs of {} wait in the queue, and {} may: submit again when some have started, or stop some",
                       load.queued, whose, quota.queued_max);
  if (load.live >= quota.live_max)
    return fmt::format("{} runs of {} are live, and {} may be: submit again when some have ended", load.live, whose,
                       quota.live_max);
  const std::int64_t bytes_most = quota.bytes_max > 0 ? quota.bytes_max : load.bytes_most;
  if (bytes_most > 0 && load.bytes >= bytes_most) return why_no_bytes(owner, load.bytes, bytes_most);
  return {};
}

}  // namespace sgd::core
