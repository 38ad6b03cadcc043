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
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/ids.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/core/only_state.hpp"

namespace sgd::core {

/// By the names that CUDA_VISIBLE_DEVICES takes: a number, or a UUID.
using GpuNames = std::vector<std::string>;

/// What a rank may use.
struct RankShare {
  std::vector<int> cores;                ///< Empty: unbound.
  std::optional<GpuNames> visible = {};  ///< GPUs that it sees; nothing: whatever there is.
  GpuNames gpus = {};                    ///< Those of its own.
};

/// Which GPUs a rank sees where ranks have their own.
enum class Visibility {
  kAuto,  ///< kNode where cuda:LOCAL_RANK is then the rank's own: one GPU each, none a part of a device.
  kNode,  ///< All of the run's on this node, by local rank: torchrun's convention.
  kOwn,   ///< Its own.
};

/// What a rank wants.
struct RankNeed {
  int cpus = 1;
  std::optional<int> gpus = {};  ///< Of its own; nothing: it uses what others leave.
  Visibility visibility = Visibility::kAuto;
};

/// What the job's `per_worker` and `process` say of it.
[[nodiscard]] RankNeed need_of(const nlohmann::json& job);

/// Whether CUDA sees at most one of these in a process, as is so with parts of a divided device (MIG):
/// https://docs.nvidia.com/datacenter/tesla/mig-user-guide, "CUDA Device Enumeration".
[[nodiscard]] bool are_parts(const GpuNames& gpus);

/// The cores of a run's ranks as the job's `process.cpu_bind` has them: "none" unbound, "numa" all cores of one node
/// for each, in equal parts by local rank (unbound where nodes are not known), else as they are.
void bind_cores(std::string_view how, const std::vector<std::vector<int>>& numa_nodes, std::vector<RankShare>& shares);

struct AllocationState {
  bool is_shared_ = false;
  std::vector<int> cores_;
  GpuNames gpus_;
  std::map<RunId, std::vector<RankShare>> held_;
  std::map<RunId, GpuNames> left_out_ = {};  ///< That the ranks of a run do not get.
};

class CoreAllocation : private AllocationState {
 public:
  using State = AllocationState;
  /// `is_shared`: for several runs.
  CoreAllocation(std::vector<int> cores, GpuNames gpus, bool is_shared)
      : State{is_shared, std::move(cores), std::move(gpus), {}} {}
  CoreAllocation() = default;
  explicit CoreAllocation(State state) : State(std::move(state)) {}
  [[nodiscard]] const State& state() const { return *this; }

  /// Shares of `ranks` ranks by local rank, in place of what the run had. `slots`: among how many the node is
  /// divided.
  [[nodiscard]] std::vector<RankShare> allocate(const RunId& run, int ranks, const RankNeed& need, int slots);
  void release(const RunId& run) { held_.erase(run); }
  /// From its next allocation on; in place of what was said before. Others get these first, where it will need the
  /// rest.
  void leave_out(const RunId& run, const GpuNames& gpus);

 private:
  [[nodiscard]] std::vector<int> free_cores() const;
  void deal_out(const RunId& run, std::vector<RankShare>& shares, std::size_t each, Visibility visibility) const;
  [[nodiscard]] GpuNames in_order_of_node(GpuNames gpus, std::size_t count) const;
  [[nodiscard]] GpuNames gpus_least_used_first(const RunId& run) const;
  [[nodiscard]] bool leaves_out(const RunId& run, const std::string& gpu) const;
  [[nodiscard]] GpuNames unowned_gpus() const;
  [[nodiscard]] std::map<std::string, int> owners_of_gpus() const;
};
static_assert(has_only_state<CoreAllocation>());

}  // namespace sgd::core
