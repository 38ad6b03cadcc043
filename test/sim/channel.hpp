#pragma once
// One direction of a connection: messages arrive in order, each after a delay of its own. Cut, it loses
// what is in flight; held, it keeps everything back until it is released (a network that drops packets
// under a connection that sends them again).

#include <deque>
#include <functional>
#include <utility>

#include "test/sim/queue.hpp"

namespace sgd::sim {

template <class Message>
class Channel {
 public:
  using Receiver = std::function<void(Message&&)>;

  Channel(Queue& queue, Receiver receiver) : queue_(queue), receiver_(std::move(receiver)) {}
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void send(Message message, Duration delay) {
    last_arrival_ = std::max(last_arrival_, queue_.now() + delay);
    flying_.push_back({last_arrival_, std::move(message)});
    if (!held_) plan(last_arrival_);
  }
  void cut() {
    flying_.clear();
    ++version_;
  }
  void hold() {
    held_ = true;
    ++version_;
  }
  void release() {
    if (!held_) return;
    held_ = false;
    last_arrival_ = std::max(last_arrival_, queue_.now());
    for (auto& [arrival, message] : flying_) plan(arrival);
  }

 private:
  void plan(TimePoint arrival) {
    queue_.at(arrival, [this, version = version_] {
      if (version != version_) return;
      Message message = std::move(flying_.front().second);
      flying_.pop_front();
      receiver_(std::move(message));
    });
  }

  Queue& queue_;
  Receiver receiver_;
  std::deque<std::pair<TimePoint, Message>> flying_;
  TimePoint last_arrival_{};
  std::uint64_t version_ = 0;
  bool held_ = false;
};

}  // namespace sgd::sim
