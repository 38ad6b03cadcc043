#pragma once
// The machine's commands in their order, each behind the newest event that was stored before it was given: none is
// carried out before that event is committed, nor before those in front of it. Without a store nothing ever waits.

#include <deque>
#include <functional>
#include <optional>
#include <utility>
#include <variant>

#include "launcher/core/coordinator_io.hpp"
#include "launcher/storage/event_store.hpp"

namespace sgd::coordinator {

class BarrierQueue {
 public:
  using Ticket = storage::EventStore::Ticket;
  /// A command, or what the shell itself does when everything before is committed.
  using Item = std::variant<core::CoordinatorCommand, std::function<void()>>;

  /// What is pushed from here on waits for `ticket`.
  void stored(Ticket ticket) { barrier_ = ticket; }
  void push(Item item) { items_.push_back({barrier_, std::move(item)}); }
  void committed(Ticket up_to) { committed_ = up_to; }
  /// The first one, if it need not wait.
  [[nodiscard]] std::optional<Item> take() {
    if (!is_ready()) return std::nullopt;
    std::optional<Item> first(std::move(items_.front().item));
    items_.pop_front();
    return first;
  }
  [[nodiscard]] bool empty() const { return items_.empty(); }
  /// The first one need not wait.
  [[nodiscard]] bool is_ready() const { return !items_.empty() && items_.front().barrier <= committed_; }
  /// Everything that follows from what was stored up to here has been taken.
  [[nodiscard]] Ticket done_up_to() const { return is_ready() ? items_.front().barrier - 1 : committed_; }

 private:
  struct Waiting {
    Ticket barrier;
    Item item;
  };
  std::deque<Waiting> items_;
  Ticket barrier_ = 0;
  Ticket committed_ = 0;
};

}  // namespace sgd::coordinator
