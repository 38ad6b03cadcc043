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
  const std::size_t name = path.rfind('/');
  const std::size_t folder = name == 0 || name == std::string_view::npos ? name : path.rfind('/', name - 1);
  if (!path.starts_with('/') || folder == std::string_view::npos)
    return "a rejected checkpoint is named by its absolute path";
  const Status named = transfer::check_checkpoint(path.substr(folder + 1));
  return named ? "" : named.error().message;
}

std::string why_not(const cluster::Fact& fact) {
  if (const auto* saved = std::get_if<cluster::CheckpointSaved>(&fact.body))
    return why_not(saved->checkpoint, fact.generation);
  if (const auto* rejected = std::get_if<cluster::CheckpointRejected>(&fact.body)) return why_not(rejected->checkpoint);
  const auto* reserved = std::get_if<cluster::PortReserved>(&fact.body);
  if (reserved == nullptr) return {};
  std::vector<int> ports = reserved->worker_ports;
  ports.push_back(reserved->port);
  const auto bad = std::find_if(ports.begin(), ports.end(), [](int port) { return port < 1 || port > 65535; });
  return bad == ports.end() ? std::string() : fmt::format("{} is no port", *bad);
}

}  // namespace sgd::core
