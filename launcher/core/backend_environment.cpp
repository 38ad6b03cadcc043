#include "launcher/core/backend_environment.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "common/json/lenient.hpp"

namespace sgd::core {
namespace {

using Variables = std::map<std::string, std::string>;

/// https://www.tensorflow.org/guide/distributed_training#TF_CONFIG. One worker alone is no cluster: it gets none, as
/// from RaySGD.
void add_tensorflow(const cluster::DesiredRun& run, const RankIdentity& identity, Variables& env) {
  if (run.world_size < 2) return;
  const nlohmann::json config = {{"cluster", {{"worker", run.endpoints}}},
                                 {"task", {{"type", "worker"}, {"index", identity.rank}}}};
  env["TF_CONFIG"] = config.dump();
}

/// Of the ranks that have this local rank on their nodes: how many there are, and the place of this one among them.
struct Cross {
  int rank = 0;
  int size = 0;
};

Cross cross_of(const cluster::DesiredRun& run, int local_rank) {
  Cross cross;
  for (std::size_t node = 0; node < run.ranks_by_node.size(); ++node) {
    if (run.ranks_by_node[node] <= local_rank) continue;
    if (static_cast<int>(node) < run.node_rank) ++cross.rank;
    ++cross.size;
  }
  return cross;
}

void add_horovod(const cluster::DesiredRun& run, const RankIdentity& identity, Variables& env) {
  const auto text = [](int number) { return fmt::format("{}", number); };
  const Cross cross = cross_of(run, identity.local_rank);
  env["HOROVOD_HOSTNAME"] = identity.node;
  env["HOROVOD_RANK"] = text(identity.rank);
  env["HOROVOD_SIZE"] = text(run.world_size);
  env["HOROVOD_LOCAL_RANK"] = text(identity.local_rank);
  env["HOROVOD_LOCAL_SIZE"] = text(identity.local_world_size);
  env["HOROVOD_CROSS_RANK"] = text(cross.rank);
  env["HOROVOD_CROSS_SIZE"] = text(cross.size);
  env["HOROVOD_CONTROLLER"] = env["HOROVOD_CPU_OPERATIONS"] = "gloo";
  env["HOROVOD_GLOO_RENDEZVOUS_ADDR"] = env.at("MASTER_ADDR");
  env["HOROVOD_GLOO_RENDEZVOUS_PORT"] = env.at("MASTER_PORT");
}

}  // namespace

void add_backend(const cluster::DesiredRun& run, const RankIdentity& identity, Variables& env) {
  const std::string backend = read_or(member(*run.job, "process"), "backend", "");
  if (backend == "tensorflow") add_tensorflow(run, identity, env);
  if (backend == "horovod") add_horovod(run, identity, env);
}

}  // namespace sgd::core
