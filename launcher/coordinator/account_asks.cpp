#include "launcher/coordinator/account_asks.hpp"

#include <set>
#include <utility>

#include "launcher/core/fact_text.hpp"
#include "launcher/net/timer.hpp"

namespace sgd::coordinator {

struct AccountAsks::Open {
  explicit Open(boost::asio::io_context& io) : deadline(io) {}
  std::set<NodeId> unanswered;
  Answers answers;
  Done done;
  net::Timer deadline;
};

void AccountAsks::ask(const std::vector<NodeId>& nodes, cluster::AccountAsk question, const Send& send, Done done) {
  if (nodes.empty() || open_.size() >= kAsksMax) return done({{}, nodes});
  const std::int64_t number = next_++;
  const auto open = std::make_shared<Open>(io_);
  open->unanswered.insert(nodes.begin(), nodes.end());
  open->done = std::move(done);
  open->deadline.after(kDeadline, [this, number] { end(number); });
  open_[number] = open;
  question.number = number;
  for (const NodeId& node : nodes) send(node, question);
}

void AccountAsks::on_answer(const NodeId& node, const cluster::AccountAnswer& answer) {
  const auto open = open_.find(answer.number);
  if (open == open_.end() || open->second->unanswered.erase(node) == 0) return;
  if (!answer.why_not.empty()) open->second->answers.refusals[node] = core::clipped(answer.why_not);
  if (open->second->unanswered.empty()) end(answer.number);
}

void AccountAsks::end(std::int64_t number) {
  const auto open = open_.extract(number);
  if (open.empty()) return;
  Open& ended = *open.mapped();
  ended.deadline.cancel();
  ended.answers.silent.assign(ended.unanswered.begin(), ended.unanswered.end());
  ended.done(ended.answers);
}

void AccountAsks::stop() {
  for (auto& [number, open] : open_) open->deadline.cancel();
  open_.clear();
}

}  // namespace sgd::coordinator
