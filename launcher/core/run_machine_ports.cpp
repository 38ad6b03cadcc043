// Where the ranks of a command meet: ports that nodes reserve for them before any of them is started.

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "launcher/core/failure_of.hpp"
#include "launcher/core/process_rules.hpp"
#include "launcher/core/run_machine.hpp"

namespace sgd::core {

/// To all nodes of a new generation.
void RunMachine::send_starts(CoordinatorCommands& out) {
  if (is_training() || has_ports()) return send_desired(cluster::Want::kRun, out);
  if (has_port_of_each(definition_.job.resolved)) return send_desired(cluster::Want::kPrepare, out);
  for (const auto& [node, record] : nodes_) send_start(node, record, out);
}

/// Ranks of a command meet at a port of rank 0's node: until it is known, other nodes are told nothing, unless each
/// rank has a port, or the run does without a GPU there, which the node gives to others first from then on.
void RunMachine::send_start(const NodeId& node, const NodeRecord& record, CoordinatorCommands& out) {
  if (is_training() || has_ports()) return send_desired(node, record, cluster::Want::kRun, out);
  const bool does_without =
      !gpu_faults_.empty() && !left_out_of(gpu_faults_, node, definition_.job.recovery.exclude_after).empty();
  if (reserves_ports(node) || does_without) send_desired(node, record, cluster::Want::kPrepare, out);
}

bool RunMachine::reserves_ports(const NodeId& node) const {
  if (is_training()) return false;
  return node == ranks_.at(0).node || has_port_of_each(definition_.job.resolved);
}

bool RunMachine::has_ports() const {
  const bool has_each = !has_port_of_each(definition_.job.resolved) || worker_ports_.size() == nodes_.size();
  return master_port_ != 0 && has_each;
}

/// "host:port" of each rank, in their order.
std::vector<std::string> RunMachine::endpoints() const {
  std::vector<std::string> endpoints(ranks_.size());
  for (const auto& [node, ports] : worker_ports_) {
    const auto known = addresses_.find(node);
    const std::string host = known == addresses_.end() ? std::string() : known->second;
    const bool is_ipv6 = host.find(':') != std::string::npos;
    const std::vector<Rank>& ranks = nodes_.at(node).ranks;
    for (std::size_t local = 0; local < ranks.size(); ++local)
      endpoints[static_cast<std::size_t>(ranks[local])] =
          fmt::format("{}{}{}:{}", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", ports[local]);
  }
  return endpoints;
}

/// What ranks are told for other frameworks than torch.
void RunMachine::add_backend(cluster::DesiredRun& desired) const {
  if (is_training() || !has_ports()) return;
  if (has_port_of_each(definition_.job.resolved)) desired.endpoints = endpoints();
  if (member(member(*definition_.job.resolved, "process"), "backend") != "horovod") return;
  desired.ranks_by_node.resize(nodes_.size());
  for (const auto& [node, record] : nodes_)
    desired.ranks_by_node[static_cast<std::size_t>(record.node_rank)] = static_cast<int>(record.ranks.size());
}

/// Said again when its node was asked again; when all are known, nothing that comes later counts.
void RunMachine::on_port(TimePoint now, const NodeId& node, const cluster::PortReserved& reserved,
                         CoordinatorCommands& out) {
  if (phase_ != RunPhase::kStarting || has_ports()) return;
  const std::vector<Rank>& ranks = nodes_.at(node).ranks;
  if (has_port_of_each(definition_.job.resolved)) {
    if (reserved.worker_ports.size() != ranks.size())
      return add_failure(now,
                         failure_of(ranks.front(), node,
                                    cluster::PortRefused{fmt::format("{} ports were reserved there for {} ranks",
                                                                     reserved.worker_ports.size(), ranks.size())}));
    worker_ports_[node] = reserved.worker_ports;
  }
  if (node == ranks_.at(0).node) master_port_ = reserved.port;
  if (has_ports()) send_desired(cluster::Want::kRun, out);
}

}  // namespace sgd::core
