#include "launcher/coordinator/run_access.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "common/json/nlohmann.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::coordinator {
namespace {

std::string record_of(const std::string& run_dir) {
  return run_dir + "/nodes.jsonl";
}

/// All of it or nothing.
Status append(const std::string& path, const std::string& lines) {
  const process::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return system_error("cannot create " + path);
  const off_t before = ::lseek(file.get(), 0, SEEK_END);
  const ssize_t count = ::write(file.get(), lines.data(), lines.size());
  if (count == static_cast<ssize_t>(lines.size())) return {};
  const Error error = system_error("cannot write " + path);
  if (count > 0) (void)::ftruncate(file.get(), before);  // Ignoring: a torn line is found by the next reader.
  return error;
}

}  // namespace

void RunAccess::admit(const RunId& run, const std::string& run_dir, const NodeId& node) {
  if (nodes_of(run, run_dir).contains(node)) return;
  known_.at(run).insert(node);
  Addition& addition = added_[run];
  addition.path = record_of(run_dir);
  if (torn_.erase(run) > 0) addition.lines += "\n";
  addition.lines += nlohmann::json({{"node", node}}).dump() + "\n";
}

void RunAccess::flush(const std::function<void(const RunId& run, std::function<Status()> write)>& hand_over) {
  for (auto& [run, addition] : std::exchange(added_, {}))
    hand_over(run, [added = std::move(addition)] { return append(added.path, added.lines); });
}

void RunAccess::forget(const RunId& run) {
  if (added_.contains(run) || known_.erase(run) == 0) return;
  torn_.erase(run);
  std::erase(order_, run);
}

std::set<NodeId>& RunAccess::remember(const RunId& run) {
  if (order_.size() >= kRunsMax) {
    known_.erase(order_.front());
    torn_.erase(order_.front());
    order_.pop_front();
  }
  order_.push_back(run);
  return known_[run];
}

const std::set<NodeId>& RunAccess::nodes_of(const RunId& run, const std::string& run_dir) {
  if (const auto known = known_.find(run); known != known_.end()) return known->second;
  std::set<NodeId>& nodes = remember(run);
  std::ifstream file(record_of(run_dir));
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) torn_.insert(run);
    const auto entry = nlohmann::json::parse(line, nullptr, false);
    const auto node = entry.is_object() ? entry.find("node") : entry.end();
    if (node != entry.end() && node->is_string()) nodes.insert(node->get<std::string>());
  }
  return nodes;
}

}  // namespace sgd::coordinator
