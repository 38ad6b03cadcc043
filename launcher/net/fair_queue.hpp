#pragma once
// Connections that wait for a place at the gateway: each address has a queue of its own, and addresses take turns, so
// that one that sends thousands makes only itself wait. What waits is a socket and no more.

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/time.hpp"

namespace sgd::net {

template <class Item>
class FairQueue {
 public:
  [[nodiscard]] std::size_t size() const { return size_; }

  void push(TimePoint now, const std::string& address, Item item) {
    std::deque<Waiting>& queue = queues_[address];
    if (queue.empty()) turns_.push_back(address);
    queue.push_back({now, std::move(item)});
    ++size_;
  }

  /// The next one whose address `may_enter`; nothing when there is none.
  template <class MayEnter>
  std::optional<Item> take(const MayEnter& may_enter) {
    for (std::size_t looks = turns_.size(); looks > 0; --looks) {
      const std::string address = turns_.front();
      turns_.pop_front();
      if (!may_enter(address)) {
        turns_.push_back(address);
        continue;
      }
      const auto queue = queues_.find(address);
      Item item = std::move(queue->second.front().item);
      queue->second.pop_front();
      --size_;
      if (queue->second.empty()) {
        queues_.erase(queue);
      } else {
        turns_.push_back(address);
      }
      return item;
    }
    return std::nullopt;
  }

  /// All that have come before `since`.
  std::vector<Item> take_older(TimePoint since) {
    std::vector<Item> old;
    for (auto& [address, queue] : queues_) {
      for (; !queue.empty() && queue.front().since < since; queue.pop_front())
        old.push_back(std::move(queue.front().item));
    }
    size_ -= old.size();
    std::erase_if(queues_, [](const auto& one) { return one.second.empty(); });
    std::erase_if(turns_, [this](const std::string& address) { return !queues_.contains(address); });
    return old;
  }

 private:
  struct Waiting {
    TimePoint since;
    Item item;
  };

  std::map<std::string, std::deque<Waiting>> queues_;  ///< None of them empty.
  std::deque<std::string> turns_;                      ///< The addresses that have one.
  std::size_t size_ = 0;
};

}  // namespace sgd::net
