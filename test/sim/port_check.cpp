#include "test/sim/port_check.hpp"

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
  if (identity.rank != 0) return;
  if (reserved->second != node.id())
    violated("{}: rank 0 of generation {} is on {}, its port was reserved on {}", id, identity.generation, node.id(),
             reserved->second);
  // Whose agent is away, or has been told of the next generation or of the end, keeps nothing any more.
  const bool is_kept = !node.is_up() || !run.check.wanted_on(node.id()) || node.told(id) != identity.generation ||
                       master == fmt::format("10.{}:{}", node.id(), node.port(id));
  if (!is_kept)
    violated("{}: rank 0 of generation {} starts, and {} does not keep {}", id, identity.generation, node.id(), master);
}

}  // namespace sgd::sim
