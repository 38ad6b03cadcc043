#pragma once
// Virtual time: what happens when. Things of one moment happen in the order in which they were planned.
// Nothing is ever cancelled: who plans something finds out himself whether it still makes sense.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "common/base/time.hpp"

namespace sgd::sim {

class Queue {
 public:
  using Action = std::function<void()>;

  [[nodiscard]] TimePoint now() const { return now_; }
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  [[nodiscard]] std::int64_t done() const { return done_; }

  void at(TimePoint time, Action action) {
    heap_.push_back({std::max(time, now_), planned_++, std::move(action)});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  void after(Duration delay, Action action) { at(now_ + delay, std::move(action)); }

  /// The next thing happens.
  void step() {
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Entry entry = std::move(heap_.back());
    heap_.pop_back();
    now_ = entry.time;
    ++done_;
    entry.action();
  }

 private:
  struct Entry {
    TimePoint time;
    std::uint64_t order = 0;
    Action action;
  };
  static bool later(const Entry& left, const Entry& right) {
    return left.time != right.time ? left.time > right.time : left.order > right.order;
  }

  TimePoint now_ = TimePoint{} + std::chrono::hours(1);  // Zero must not look like "never".
  std::uint64_t planned_ = 0;
  std::int64_t done_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace sgd::sim
