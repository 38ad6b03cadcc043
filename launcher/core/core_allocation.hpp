#pragma once
// Which cores and GPUs of a node each rank of each run has, so that runs that share a node do not share
// cores.
//
// A node of one run (the launcher's own process) divides all its cores among that run's ranks. A node of
// several runs gives a rank the cores of one slot, or the job's if those are more, and keeps the rest for
// others. Where cores do not suffice no rank of the run is bound; GPUs are then shared with the fewest
// others.

#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/ids.hpp"
#include "launcher/core/only_state.hpp"

namespace sgd::core {

/// What a rank may use.
struct RankShare {
  std::vector<int> cores;                ///< Empty: unbound.
  std::optional<std::vector<int>> gpus;  ///< That it sees; nothing: whatever there is.
};

/// What a rank wants.
struct RankNeed {
  int cpus = 1;
  std::optional<int> gpus;  ///< Of its own; nothing: it uses what others leave.
};

/// The cores of a run's ranks as the job's `process.cpu_bind` has them: "none" unbound, "numa" all cores of one node
/// for each, in equal parts by local rank (unbound where nodes are not known), else as they are.
void bind_cores(std::string_view how, const std::vector<std::vector<int>>& numa_nodes, std::vector<RankShare>& shares);

struct AllocationState {
  bool is_shared_ = false;
  std::vector<int> cores_;
  std::vector<int> gpus_;
  std::map<RunId, std::vector<RankShare>> held_;  ///< Without GPUs where they are not a rank's own.
};

class CoreAllocation : private AllocationState {
 public:
  using State = AllocationState;
  /// `is_shared`: for several runs.
  CoreAllocation(std::vector<int> cores, std::vector<int> gpus, bool is_shared)
      : State{is_shared, std::move(cores), std::move(gpus), {}} {}
  CoreAllocation() = default;
  explicit CoreAllocation(State state) : State(std::move(state)) {}
  [[nodiscard]] const State& state() const { return *this; }

  /// Shares of `ranks` ranks by local rank, in place of what the run had. `slots`: among how many the node is
  /// divided.
  [[nodiscard]] std::vector<RankShare> allocate(const RunId& run, int ranks, const RankNeed& need, int slots);
  void release(const RunId& run) { held_.erase(run); }

 private:
  [[nodiscard]] std::vector<int> free_cores() const;
  [[nodiscard]] std::vector<int> gpus_least_used_first() const;
  [[nodiscard]] std::vector<int> unowned_gpus() const;
  [[nodiscard]] std::map<int, int> owners_of_gpus() const;
};
static_assert(has_only_state<CoreAllocation>());

}  // namespace sgd::core
