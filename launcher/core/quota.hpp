#pragma once
// How much one owner may have in a cluster, so that nobody's runs, nor what tells of them, are drowned by another's.
// Who is an admin is not bound by it, but for the number of all runs, which is what this coordinator can hold.

#include <cstddef>
#include <cstdint>
#include <string>

#include "launcher/core/coordinator_io.hpp"

namespace sgd::core {

struct OwnerQuota {
  std::size_t live_max = 200;          ///< Runs that have not ended.
  std::size_t queued_max = 100;        ///< Of them: that wait for their first start.
  std::size_t live_of_all_max = 5000;  ///< Of all owners.
  std::int64_t bytes_max = 0;          ///< Of the folders of its runs; 0: as OwnerLoad says.
  int priority_least = -100;           ///< An owner's own runs may give way to each other and to others' ...
  int priority_most = 0;               ///< ... and pass nobody's.
};

/// What an owner has.
struct OwnerLoad {
  std::size_t live = 0;
  std::size_t queued = 0;
  std::size_t live_of_all = 0;
  std::int64_t bytes = 0;       ///< Of the folders of its runs.
  std::int64_t bytes_most = 0;  ///< Its share of the disk, where the quota names no limit; 0: not known.
};

/// Why the runs of `owner`, which take `bytes`, may not take more than `limit`, in words with the way out.
[[nodiscard]] std::string why_no_bytes(const std::string& owner, std::int64_t bytes, std::int64_t limit);

/// Why one more run of this priority is not taken from `owner`, in words with the way out; empty: it is.
[[nodiscard]] std::string why_not_taken(const std::string& owner, int priority, bool is_admin, const OwnerLoad& load,
                                        const OwnerQuota& quota);

}  // namespace sgd::core
