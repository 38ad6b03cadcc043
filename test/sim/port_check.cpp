#include "test/sim/port_check.hpp"

#include <algorithm>

#include "test/sim/node.hpp"
#include "test/sim/run_state.hpp"

namespace sgd::sim {

int PortCheck::reserve(const NodeId& node, const RunId& run, Generation generation) {
  ++newest_;
  reserved_[{run, generation, fmt::format("10.{}:{}", node, newest_)}] = node;
  return newest_;
}

void PortCheck::on_process_start(const RunState& run, Node& node, const Worker::Identity& identity) {
  const RunId& id = run.plan.definition.id;
  const std::string& master = identity.master;
  if (run.plan.definition.job.training) {
    if (!master.empty()) violated("{}: a rank of training is told to meet at {}", id, master);
    return;
  }
  const auto reserved = reserved_.find({id, identity.generation, master});
  if (reserved == reserved_.end())
    violated("{}: rank {} of generation {} is told {}, which was not reserved for it", id, identity.rank,
             identity.generation, master);
  const auto [told, is_first] = told_.try_emplace({id, identity.generation}, master);
  if (!is_first && told->second != master && !run.check.is_forgotten(identity.generation))
    violated("{}: ranks of generation {} are told {} and {}", id, identity.generation, told->second, master);
  told->second = master;
  if (identity.rank == 0) check_kept(run, node, identity, master);
  check_workers(run, node, identity);
}

/// `place` is where a rank waits that starts on `node`.
void PortCheck::check_kept(const RunState& run, Node& node, const Worker::Identity& identity,
                           const std::string& place) const {
  const RunId& id = run.plan.definition.id;
  const auto reserved = reserved_.find({id, identity.generation, place});
  if (reserved == reserved_.end() || reserved->second != node.id())
    violated("{}: rank {} of generation {} is on {}, its port {} was not reserved there", id, identity.rank,
             identity.generation, node.id(), place);
  const std::vector<int> ports = node.ports(id);
  const auto is_it = [&](int port) { return place == fmt::format("10.{}:{}", node.id(), port); };
  // Whose agent is away, or has been told of the next generation or of the end, keeps nothing any more: one that stood
  // still hears of a start and of its end at once, and the start is with the keeper by then.
  const bool is_kept = !node.is_up() || node.told(id) != identity.generation || node.is_told_to_end(id) ||
                       std::any_of(ports.begin(), ports.end(), is_it);
  if (!is_kept)
    violated("{}: rank {} of generation {} starts, and {} does not keep {}", id, identity.rank, identity.generation,
             node.id(), place);
}

void PortCheck::check_workers(const RunState& run, Node& node, const Worker::Identity& identity) {
  const RunId& id = run.plan.definition.id;
  if (identity.tf_config.empty()) return;
  const nlohmann::json workers = nlohmann::json::parse(identity.tf_config).at("cluster").at("worker");
  const auto [told, is_first] = workers_.try_emplace({id, identity.generation}, workers);
  if (!is_first && told->second != workers && !run.check.is_forgotten(identity.generation))
    violated("{}: ranks of generation {} are told {} and {}", id, identity.generation, told->second.dump(),
             workers.dump());
  told->second = workers;
  check_kept(run, node, identity, workers.at(static_cast<std::size_t>(identity.rank)));
}

}  // namespace sgd::sim
