#include "launcher/core/claims.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "common/checkpoint/manifest.hpp"
#include "common/messages/transfer.hpp"

namespace sgd::core {

std::string why_not(const link::CheckpointSaved& saved, Generation generation) {
  if (const Status named = transfer::check_checkpoint(saved.path); !named) return named.error().message;
  const auto name = checkpoint::parse_directory_name(saved.path.substr(saved.path.rfind('/') + 1));
  if (name->generation != generation)
    return fmt::format("a checkpoint of generation {}, said by a rank of generation {}", name->generation, generation);
  if (name->step != saved.step) return fmt::format("{} is said to be of step {}", saved.path, saved.step);
  if (saved.bytes < 0 || saved.epoch < 0)
    return fmt::format("{} has {} bytes of epoch {}", saved.path, saved.bytes, saved.epoch);
  return {};
}

std::string why_not(const link::CheckpointRejected& rejected) {
  const std::string_view path = rejected.path;
  // The last `count` parts of the path; all of it, where it has no more.
  const auto end_of_path = [path](int count) {
    std::size_t from = path.size();
    for (; count > 0 && from != 0 && from != std::string_view::npos; --count) from = path.rfind('/', from - 1);
    return from == std::string_view::npos ? path : path.substr(from + 1);
  };
  if (!path.starts_with('/') || path.rfind('/') == 0) return "a rejected checkpoint is named by its absolute path";
  const Status named = transfer::check_checkpoint(end_of_path(2));
  return named || transfer::check_taken(end_of_path(3)) ? "" : named.error().message;
}

std::string why_not(const std::map<std::string, std::string>& labels) {
  if (labels.size() > kNodeLabelsMax) return fmt::format("{} labels; {} may be given", labels.size(), kNodeLabelsMax);
  for (const auto& [name, value] : labels)
    if (name.size() > kNodeTextMax || value.size() > kNodeTextMax)
      return fmt::format("a label of {} bytes; name and value may have {} each", name.size() + value.size(),
                         kNodeTextMax);
  return {};
}

std::string why_not(const cluster::NodeState& state) {
  for (const auto& [what, count] : {std::pair("slots", state.slots), {"cores", state.cpus}, {"GPUs", state.gpus}})
    if (count < 0 || count > kNodeUnitsMax) return fmt::format("{} {}; a node may have {}", count, what, kNodeUnitsMax);
  if (state.memory_bytes < 0 || state.memory_bytes > kNodeMemoryMax)
    return fmt::format("{} bytes of memory; a node may have {}", state.memory_bytes, kNodeMemoryMax);
  if (state.acknowledged < 0 || state.acknowledged > INT64_MAX / 2)
    return fmt::format("{} facts that were acknowledged", state.acknowledged);
  if (state.address.size() > kNodeTextMax || state.version.size() > kNodeTextMax)
    return fmt::format("an address or a version of more than {} bytes", kNodeTextMax);
  if (state.runs.size() > kNodeRunsMax)
    return fmt::format("{} runs; a node may hold {}", state.runs.size(), kNodeRunsMax);
  std::int64_t workers = 0;
  for (const cluster::HeldRun& held : state.runs) {
    if (!transfer::is_part(held.run)) return "a run whose name cannot be one";
    if (held.workers < 0 || (workers += held.workers) > kNodeUnitsMax)
      return fmt::format("{} ranks of its runs; a node may hold {}", held.workers < 0 ? held.workers : workers,
                         kNodeUnitsMax);
  }
  return why_not(state.labels);
}

namespace {

/// Of names of GPUs, which are kept and shown.
std::string why_not_named(const std::vector<std::string>& gpus) {
  const auto is_long = [](const std::string& gpu) { return gpu.size() > kGpuNameMax; };
  return std::any_of(gpus.begin(), gpus.end(), is_long)
             ? fmt::format("a GPU with a name of more than {} bytes", kGpuNameMax)
             : "";
}

/// That a fact names.
std::vector<std::string> gpus_of(const cluster::FactBody& body) {
  if (const auto* started = std::get_if<cluster::WorkerStarted>(&body)) return started->gpus;
  const auto* exited = std::get_if<cluster::WorkerExited>(&body);
  const auto* raised = std::get_if<cluster::RanksRaised>(&body);
  std::vector<std::string> gpus;
  if (exited != nullptr) gpus.push_back(exited->gpu);
  if (exited != nullptr || raised != nullptr)
    for (const OtherError& other : exited != nullptr ? exited->others : raised->others) gpus.push_back(other.gpu);
  return gpus;
}

}  // namespace

std::string why_not(const cluster::Fact& fact) {
  const auto* started = std::get_if<cluster::WorkerStarted>(&fact.body);
  if (started != nullptr && started->gpus.size() > kRankGpusMax)
    return fmt::format("{} GPUs of a rank; it may have {}", started->gpus.size(), kRankGpusMax);
  if (std::string why = why_not_named(gpus_of(fact.body)); !why.empty()) return why;
  if (const auto* saved = std::get_if<cluster::CheckpointSaved>(&fact.body))
    return why_not(saved->checkpoint, fact.generation);
  if (const auto* rejected = std::get_if<cluster::CheckpointRejected>(&fact.body)) return why_not(rejected->checkpoint);
  const auto* dropped = std::get_if<cluster::OutputDropped>(&fact.body);
  if (dropped != nullptr && (dropped->lines < 0 || dropped->bytes < 0))
    return fmt::format("{} lines of {} bytes that are lost", dropped->lines, dropped->bytes);
  const auto* reserved = std::get_if<cluster::PortReserved>(&fact.body);
  if (reserved == nullptr) return {};
  std::vector<int> ports = reserved->worker_ports;
  ports.push_back(reserved->port);
  const auto bad = std::find_if(ports.begin(), ports.end(), [](int port) { return port < 1 || port > 65535; });
  return bad == ports.end() ? std::string() : fmt::format("{} is no port", *bad);
}

}  // namespace sgd::core
