#include "test/sim/gpu_check.hpp"

#include <algorithm>

#include "test/sim/keeper.hpp"
#include "test/sim/node.hpp"
#include "test/sim/run_state.hpp"

namespace sgd::sim {

void GpuCheck::on_process_start(std::map<RunId, RunState>& runs, const RunState& run, Node& node,
                                const Worker::Identity& identity) {
  const RunId& id = run.plan.definition.id;
  if (run.plan.definition.job.per_worker.gpus == 0) return;
  Ledger& ledger = ledgers_[id];
  const Gpu gpu(node.id(), identity.gpu);
  ledger.has[{identity.generation, identity.rank}] = gpu;
  if (has_forgotten_) return;
  if (identity.gpu.empty())
    violated("{}: rank {} of generation {} on {} has no GPU", id, identity.rank, identity.generation, node.id());
  const auto left_out = ledger.left_out.find(gpu);
  if (left_out != ledger.left_out.end() && identity.generation > left_out->second)
    violated("{}: rank {} of generation {} is given {} of {}, which was the cause of {} restarts", id, identity.rank,
             identity.generation, gpu.second, gpu.first, ledger.restarts.at(gpu));
  for (auto& [other, state] : runs)
    for (Worker* worker : state.alive)
      if (&worker->node() == &node && worker->keeper().incarnation() == node.incarnation() &&
          worker->identity().gpu == identity.gpu)
        violated("{}: rank {} of generation {} is given {} of {}, which rank {} of {} has", id, identity.rank,
                 identity.generation, gpu.second, gpu.first, worker->rank(), other);
}

void GpuCheck::on_broken(const RunState& run, const Worker::Identity& identity) {
  ledgers_[run.plan.definition.id].broken.insert({identity.generation, identity.rank});
}

void GpuCheck::on_event(const RunState& run, const nlohmann::ordered_json& event) {
  Ledger& ledger = ledgers_[run.plan.definition.id];
  if (has_forgotten_) return;
  const std::string& what = event.at("event").get_ref<const std::string&>();
  if (what == "gpu_excluded") {
    const std::tuple told(Gpu(event.at("node"), event.at("device")), event.at("count").get<int>());
    if (std::exchange(ledger.to_be_told, {}) != told)
      violated("{}: a GPU is left out that has not been the cause: {}", run.plan.definition.id, event.dump());
    return;
  }
  if (ledger.to_be_told)
    violated("{}: {} of {} was the cause of {} restarts, and goes on", run.plan.definition.id,
             std::get<0>(*ledger.to_be_told).second, std::get<0>(*ledger.to_be_told).first,
             std::get<1>(*ledger.to_be_told));
  if (what == "failure") on_failure(run, ledger, event);
}

/// Who has failed otherwise before its GPU broke, or was thought to, blames none.
void GpuCheck::on_failure(const RunState& run, Ledger& ledger, const nlohmann::ordered_json& event) {
  const Rank rank = event.at("rank").is_null() ? -1 : event.at("rank").get<Rank>();
  const std::pair<Generation, Rank> place(event.at("generation"), rank);
  const std::string device = event.value("device", "");
  if (event.at("kind") != "exit_code" || !ledger.broken.contains(place)) {
    if (!device.empty()) violated("{}: a GPU is blamed that has not failed: {}", run.plan.definition.id, event.dump());
    return;
  }
  const Gpu& gpu = ledger.has.at(place);
  if (device != gpu.second || event.at("node") != gpu.first)
    violated("{}: {} of {} has failed, and is not blamed: {}", run.plan.definition.id, gpu.second, gpu.first,
             event.dump());
  const int after = run.plan.definition.job.recovery.exclude_after;
  if (event.at("restart") != true || ++ledger.restarts[gpu] != after) return;
  ledger.left_out[gpu] = place.first;
  ledger.to_be_told.emplace(gpu, after);
}

int GpuCheck::left_out(std::map<RunId, RunState>& runs, const RunState& run, const Node& node) const {
  const auto ledger = ledgers_.find(run.plan.definition.id);
  if (ledger == ledgers_.end()) return 0;
  int count = 0;
  for (const auto& [gpu, generation] : ledger->second.left_out) {
    const auto has_it = [&](Worker* worker) {
      return &worker->node() == &node && worker->identity().gpu == gpu.second;
    };
    const bool is_held = std::any_of(runs.begin(), runs.end(), [&](auto& other) {
      return std::any_of(other.second.alive.begin(), other.second.alive.end(), has_it);
    });
    if (gpu.first == node.id() && !is_held) ++count;
  }
  return count;
}

}  // namespace sgd::sim
