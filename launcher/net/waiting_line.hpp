#pragma once
// Who waits before the door until there is a place: each address has a line of its own, and addresses take turns, so
// that one that sends thousands makes only itself wait. What waits is a socket and no more.

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/time.hpp"

namespace sgd::net {

template <class Item>
class WaitingLine {
 public:
  [[nodiscard]] std::size_t size() const { return size_; }

  void push(TimePoint now, const std::string& address, Item item) {
    std::deque<Waiting>& line = lines_[address];
    if (line.empty()) turns_.push_back(address);
    line.push_back({now, std::move(item)});
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
      const auto line = lines_.find(address);
      Item item = std::move(line->second.front().item);
      line->second.pop_front();
      --size_;
      if (line->second.empty()) {
        lines_.erase(line);
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
    for (auto& [address, line] : lines_) {
      for (; !line.empty() && line.front().since < since; line.pop_front()) old.push_back(std::move(line.front().item));
    }
    size_ -= old.size();
    std::erase_if(lines_, [](const auto& one) { return one.second.empty(); });
    std::erase_if(turns_, [this](const std::string& address) { return !lines_.contains(address); });
    return old;
  }

 private:
  struct Waiting {
    TimePoint since;
    Item item;
  };

  std::map<std::string, std::deque<Waiting>> lines_;  ///< None of them empty.
  std::deque<std::string> turns_;                     ///< The addresses that have one.
  std::size_t size_ = 0;
};

}  // namespace sgd::net
