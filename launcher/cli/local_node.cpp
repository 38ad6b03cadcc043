#include "launcher/cli/local_node.hpp"

#include <malloc.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "common/messages/keeper.hpp"
#include "launcher/cli/program_files.hpp"
#include "launcher/core/cpu_share.hpp"
#include "launcher/process/cpu_set.hpp"
#include "launcher/process/node_resources.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/random_seed.hpp"

namespace sgd::cli {

namespace {

/// Those of one of several nodes that share this machine.
std::vector<std::string> gpus_of_node(const std::vector<std::string>& all, int index, int nodes) {
  const auto at = [&](int node) { return all.begin() + static_cast<std::ptrdiff_t>(all.size()) * node / nodes; };
  return {at(index), at(index + 1)};
}

}  // namespace

core::AgentFacts local_facts(const job::JobSpec& job, const LocalPlace& place) {
  const std::vector<int> cores = process::allowed_cores();
  core::AgentFacts facts;
  facts.node = place.nodes == 1 ? "localhost" : fmt::format("node-{}", place.index);
  facts.address = "127.0.0.1";
  facts.incarnation = static_cast<Incarnation>(process::random_seed().front());
  facts.slots = place.slots / place.nodes + (place.index < place.slots % place.nodes ? 1 : 0);
  facts.allowed_cores = core::cpu_share(cores, place.index, place.nodes, 1).cores;
  if (facts.allowed_cores.empty()) facts.allowed_cores = cores;
  facts.worker_program = worker_program();
  facts.python_folder = python_folder();
  const nlohmann::json& command = member(*job.resolved, "process");
  if (member(command, "cpu_bind") == "numa") facts.numa_nodes = process::by_numa_node(facts.allowed_cores);
  if (member(command, "virtual_local_rank") == true || job.per_worker.gpus > 0)
    facts.gpus = gpus_of_node(process::gpus(std::getenv("CUDA_VISIBLE_DEVICES")), place.index, place.nodes);
  facts.are_gpus_by_bus =
      process::are_gpus_by_bus(std::getenv("CUDA_VISIBLE_DEVICES"), std::getenv("CUDA_DEVICE_ORDER"));
  return facts;
}

Status begin_locally() {
  (void)std::signal(SIGPIPE, SIG_IGN);
  // What ranks write comes in pieces of some hundred KiB: their memory is used again, and not fetched anew for each.
  (void)::mallopt(M_MMAP_THRESHOLD, static_cast<int>(keeper::kOutputWindowBytes));
  (void)::mallopt(M_TRIM_THRESHOLD, static_cast<int>(2 * keeper::kOutputWindowBytes));
  return process::become_subreaper();
}

std::string as_typed(const std::string& directory) {
  std::error_code error;
  const std::string relative = std::filesystem::relative(directory, error).string();
  return error || relative.empty() || relative.starts_with("..") ? directory : relative;
}

nlohmann::ordered_json refused_request(const char* kind, std::string error) {
  return {{"ok", false}, {"kind", kind}, {"error", std::move(error)}};
}

}  // namespace sgd::cli
