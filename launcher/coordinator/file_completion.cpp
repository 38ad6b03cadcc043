#include "launcher/coordinator/file_completion.hpp"

#include <algorithm>
#include <utility>

#include "common/json/lenient.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::coordinator {
namespace {

/// Nodes that are gone are noticed by looking again.
constexpr Duration kLookAgain = std::chrono::milliseconds(200);

}  // namespace

FileCompletion::FileCompletion(boost::asio::io_context& io, Handlers handlers)
    : io_(io), handlers_(std::move(handlers)) {}

void FileCompletion::on_event(const RunId& run, const nlohmann::ordered_json& event) {
  if (read_or(event, "event", "") != "worker_started") return;
  if (const auto sent = sent_.find(run); sent != sent_.end()) sent->second.erase(read_or(event, "node", ""));
}

void FileCompletion::on_all_sent(const RunId& run, const NodeId& node) {
  sent_[run].insert(node);
  if (waiting_.contains(run)) look(run);
}

void FileCompletion::on_over(const RunId& run) {
  Waiting& waiting = waiting_[run];
  waiting.nodes = handlers_.nodes_of(run);
  waiting.timer = std::make_unique<net::Timer>(io_);
  waiting.deadline = process::monotonic_now() + kLimit;
  look(run);
}

void FileCompletion::look(const RunId& run) {
  Waiting& waiting = waiting_.at(run);
  const std::set<NodeId>& sent = sent_[run];
  const bool is_whole = std::all_of(waiting.nodes.begin(), waiting.nodes.end(), [&](const NodeId& node) {
    return sent.contains(node) || !handlers_.is_connected(node);
  });
  if (is_whole || process::monotonic_now() >= waiting.deadline) {
    waiting_.erase(run);
    sent_.erase(run);
    return handlers_.on_settled(run, is_whole);
  }
  waiting.timer->after(kLookAgain, [this, run] { look(run); });
}

}  // namespace sgd::coordinator
