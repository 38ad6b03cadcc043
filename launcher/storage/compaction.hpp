#pragma once
// What bounds the log at any load: the events up to one of them become the state that they lead to. It is made as a
// restart would make it, from the state before and the events behind that, beside the process that goes on writing:
//
//   states (as of event m) ──> core::Coordinator ──replay of m+1 .. n──> states (as of event n), of which those that
//   have changed are written, together with n; after that the events up to n count for nothing
//
// So what a restart will find is what was made by one.

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "launcher/core/coordinator_state.hpp"
#include "launcher/storage/state_codec.hpp"
#include "launcher/storage/stored_run.hpp"

namespace sgd::storage {

/// Takes the place of all events up to `event`.
struct StateCut {
  std::uint64_t event = 0;
  TimePoint at;                   ///< Of that event.
  std::vector<StateRow> changed;  ///< Or new.
  std::vector<StateRow> gone;     ///< Without text.
  std::map<RunId, LineCounts>
      lines;  ///< That the events have made of each run: they are in its files, and on the disk.
};

/// `database`: the path of the store's, which another thread may write to meanwhile. Everything that follows from the
/// events up to `event` must have been carried out. `is_ending` ends it early, with an error.
[[nodiscard]] Result<StateCut> compact(const std::string& database, std::uint64_t event,
                                       const core::CoordinatorSettings& settings, const std::atomic<bool>& is_ending);

}  // namespace sgd::storage
