#include "test/sim/log.hpp"

#include "launcher/storage/event_codec.hpp"

namespace sgd::sim {

using core::coordinator_event::NodeOrdered;
using core::coordinator_event::NodesKnown;
using core::coordinator_event::Submitted;

namespace {

/// As it is read again. A job of the simulator is no file that a loader would take.
core::CoordinatorEvent from_disk(const core::CoordinatorEvent& event) {
  if (std::holds_alternative<Submitted>(event)) return event;
  auto read = storage::decode_event(storage::encode_event(event));
  if (!read) violated("a stored event cannot be read: {}", read.error().message);
  return std::move(read).value();
}

}  // namespace

void Log::push(core::CoordinatorCommand&& command) {
  if (auto* store = std::get_if<Store>(&command)) {
    if (world_.plan.has_bytes) store->event = from_disk(store->event);
    Barrier barrier{++given_, std::make_shared<const Store>(std::move(*store))};
    written_.push_back(barrier);
    waiting_.emplace_back(std::move(barrier));
    if (in_work_ == 0) write();
  } else {
    waiting_.emplace_back(std::move(command));
  }
  drain();
}

void Log::write() {
  in_work_ = given_;
  if (world_.plan.commit == Duration{0}) return commit(in_work_);
  const Duration slow = world_.chance.with(0.01) ? world_.chance.between(Duration{0}, kCommitMost / 2) : Duration{0};
  const Duration time = world_.chance.between(world_.plan.commit / 2, world_.plan.commit * 3 / 2) + slow;
  world_.queue.after(time, [this, life = life_] {
    if (life == life_) commit(in_work_);
  });
}

void Log::commit(std::uint64_t up_to) {
  in_work_ = 0;
  committed_ = up_to;
  for (; !written_.empty() && written_.front().number <= up_to; written_.pop_front())
    stored_.push_back(std::move(written_.front().store));
  drain();
  if (in_work_ == 0 && !written_.empty()) write();
}

void Log::drain() {
  if (is_draining_) return;
  is_draining_ = true;
  while (!waiting_.empty()) {
    if (const auto* barrier = std::get_if<Barrier>(&waiting_.front())) {
      if (barrier->number > committed_) break;
      const std::shared_ptr<const Store> store = barrier->store;
      waiting_.pop_front();
      note_(*store);
    } else {
      core::CoordinatorCommand command = std::move(std::get<core::CoordinatorCommand>(waiting_.front()));
      waiting_.pop_front();
      carry_out_(std::move(command));
    }
  }
  is_draining_ = false;
}

void Log::die() {
  ++life_;
  waiting_.clear();
  if (in_work_ != 0 && world_.chance.with(0.5))
    for (; !written_.empty() && written_.front().number <= in_work_; written_.pop_front())
      stored_.push_back(std::move(written_.front().store));
  written_.clear();
  in_work_ = 0;
  committed_ = given_;
}

bool Log::lose_tail() {
  std::size_t most = 0;
  for (auto store = stored_.rbegin(); store != stored_.rend(); ++store, ++most) {
    const core::CoordinatorEvent& event = (*store)->event;
    if (std::holds_alternative<Submitted>(event) || std::holds_alternative<NodeOrdered>(event) ||
        std::holds_alternative<NodesKnown>(event))
      break;
  }
  if (most == 0) return false;
  const int few = world_.chance.between(1, 40);
  stored_.resize(stored_.size() - std::min(most, static_cast<std::size_t>(few)));
  return true;
}

void Log::cut(Store known) {
  stored_ = {std::make_shared<const Store>(std::move(known))};
}

}  // namespace sgd::sim
