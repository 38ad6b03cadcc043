#include "launcher/core/outbox.hpp"

#include <algorithm>

namespace sgd::core {

void Outbox::push(cluster::Fact fact) {
  fact.incarnation = incarnation_;
  Lane& lane = lanes_[fact.run];
  Kept kept{std::move(fact), 0};
  kept.bytes = cluster::encode(cluster::FromAgent(kept.fact)).size();
  ++lane.facts;
  lane.bytes += kept.bytes;
  lane.waiting.push_back(std::move(kept));
  ++waiting_;
}

void Outbox::begin_again(std::size_t window) {
  sent_ = sent_bytes_ = 0;
  window_ = window;
  resend_at_.reset();
}

void Outbox::on_connected() {
  is_linked_ = true;
  resend_after_ = kResendAfter;
  begin_again(kWindowBytes);
}

void Outbox::on_disconnected() {
  is_linked_ = false;
  begin_again(kWindowBytes);
}

void Outbox::acknowledge(TimePoint now, std::int64_t sequence) {
  bool is_news = false;
  for (; !numbered_.empty() && numbered_.front().fact.sequence <= sequence; numbered_.pop_front()) {
    const Kept& taken = numbered_.front();
    is_news = true;
    if (sent_ > 0) {  // Else it was sent before this link was begun anew.
      --sent_;
      sent_bytes_ -= taken.bytes;
    }
    const auto lane = lanes_.find(taken.fact.run);
    lane->second.bytes -= taken.bytes;
    lane->second.window_bytes -= taken.bytes;
    if (--lane->second.facts == 0) lanes_.erase(lane);
  }
  if (!is_news) return;
  window_ = std::min(2 * window_, kWindowBytes);
  resend_after_ = kResendAfter;
  resend_at_ = sent_ == 0 ? std::nullopt : std::optional(now + resend_after_);
}

void Outbox::send(TimePoint now, AgentCommands& out) {
  if (!is_linked_) return;
  while (sent_bytes_ < window_ && (sent_ < numbered_.size() || number_next())) {
    const Kept& next = numbered_[sent_++];
    sent_bytes_ += next.bytes;
    out.push_back(agent_command::TellCoordinator{next.fact});
  }
  if (sent_ > 0 && !resend_at_) resend_at_ = now + resend_after_;
}

/// The oldest fact of the next lane that has one and whose own window has room.
bool Outbox::number_next() {
  if (waiting_ == 0) return false;
  auto lane = lanes_.upper_bound(last_turn_);
  for (std::size_t looks = lanes_.size(); looks > 0; --looks, ++lane) {
    if (lane == lanes_.end()) lane = lanes_.begin();
    Lane& its = lane->second;
    if (its.waiting.empty() || its.window_bytes >= kRunWindowBytes) continue;
    Kept next = std::move(its.waiting.front());
    its.waiting.pop_front();
    --waiting_;
    its.window_bytes += next.bytes;
    next.fact.sequence = ++sequence_;
    numbered_.push_back(std::move(next));
    last_turn_ = lane->first;
    return true;
  }
  return false;
}

bool Outbox::on_tick(TimePoint now) {
  if (!resend_at_ || now < *resend_at_) return false;
  begin_again(kProbeBytes);
  resend_after_ = std::min(2 * resend_after_, kResendMax);
  return true;
}

bool Outbox::has(const RunId& run, Generation generation, GenerationUid uid) const {
  const auto lane = lanes_.find(run);
  if (lane == lanes_.end()) return false;
  const auto is_of_it = [&](const Kept& kept) {
    return kept.fact.run == run && kept.fact.generation == generation && kept.fact.uid == uid;
  };
  return std::any_of(numbered_.begin(), numbered_.end(), is_of_it) ||
         std::any_of(lane->second.waiting.begin(), lane->second.waiting.end(), is_of_it);
}

bool Outbox::is_full(const RunId& run) const {
  const auto lane = lanes_.find(run);
  return lane != lanes_.end() && (lane->second.bytes >= kRunBytesMax || lane->second.facts >= kRunFactsMax);
}

bool Outbox::has_room(const RunId& run) const {
  const auto lane = lanes_.find(run);
  return lane == lanes_.end() || (lane->second.bytes <= kRunBytesMax / 2 && lane->second.facts <= kRunFactsMax / 2);
}

}  // namespace sgd::core
