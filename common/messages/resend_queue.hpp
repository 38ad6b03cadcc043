#pragma once
// One direction of a link that is made again after the other end's process has died: what was sent is kept,
// in order, until the other end says that it has it, and what it lacks is sent again. Messages are counted
// from 1; the other end counts what it takes, and the two counts are all that is agreed on. Pure: sending is
// the owner's.

#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "common/base/result.hpp"

namespace sgd {

class ResendQueue {
 public:
  void push(std::string message) {
    bytes_ += message.size();
    ++sent_;
    kept_.push_back(std::move(message));
  }
  /// Goes on as one that has sent `sent` messages, of which the last are `kept`.
  void restore(std::int64_t sent, std::deque<std::string> kept) {
    sent_ = sent;
    kept_ = std::move(kept);
    bytes_ = 0;
    for (const std::string& message : kept_) bytes_ += message.size();
  }
  /// The other end has the first `count` of all. Error: it cannot have as many, or asks for what is no longer kept.
  [[nodiscard]] Status acknowledge(std::int64_t count) {
    if (count > sent_ || count < sent_ - static_cast<std::int64_t>(kept_.size()))
      return Error{"it says that it has " + std::to_string(count) + " messages of " + std::to_string(sent_) + ", " +
                   std::to_string(kept_.size()) + " of them kept"};
    while (sent_ - static_cast<std::int64_t>(kept_.size()) < count) {
      bytes_ -= kept_.front().size();
      kept_.pop_front();
    }
    return {};
  }
  /// What is not acknowledged, oldest first.
  [[nodiscard]] const std::deque<std::string>& kept() const { return kept_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] std::int64_t sent() const { return sent_; }

 private:
  std::deque<std::string> kept_;
  std::size_t bytes_ = 0;
  std::int64_t sent_ = 0;
};

}  // namespace sgd
