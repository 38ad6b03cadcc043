#include "launcher/coordinator/run_access.hpp"

#include <fstream>

#include "common/json/nlohmann.hpp"
#include "launcher/storage/line_file.hpp"

namespace sgd::coordinator {
namespace {

std::string record_of(const std::string& run_dir) {
  return run_dir + "/nodes.jsonl";
}

}  // namespace

Status RunAccess::admit(const RunId& run, const std::string& run_dir, const NodeId& node) {
  if (nodes_of(run, run_dir).contains(node)) return {};
  known_.at(run).insert(node);
  auto file = storage::LineFile::open(record_of(run_dir), 0);
  if (!file) return file.error();
  return file.value().append(nlohmann::json({{"node", node}}).dump() + "\n");
}

const std::set<NodeId>& RunAccess::nodes_of(const RunId& run, const std::string& run_dir) {
  if (const auto known = known_.find(run); known != known_.end()) return known->second;
  if (order_.size() >= kRunsMax) {
    known_.erase(order_.front());
    order_.pop_front();
  }
  order_.push_back(run);
  std::set<NodeId>& nodes = known_[run];
  std::ifstream file(record_of(run_dir));
  for (std::string line; std::getline(file, line);) {
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    const auto node = entry.is_object() ? entry.find("node") : entry.end();
    if (node != entry.end() && node->is_string()) nodes.insert(node->get<std::string>());
  }
  return nodes;
}

}  // namespace sgd::coordinator
