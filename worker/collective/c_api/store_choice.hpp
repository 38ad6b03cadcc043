#pragma once
// Whether what is meant for other ranks is written past the caches. Cores that share a cache find it there sooner (an
// all_reduce in half the time); where they share none, a line that another core has to fetch out of this one's cache
// costs several times one from memory. What a machine says of its caches is not reliable (virtual ones say anything),
// so the first large operations of a group are done in both ways, and the one that took less goes on.
//
// The ranks of a group count the same operations, so all of them try the same way at a time; each then chooses for
// itself, by what it has measured. Results do not depend on it.

#include <algorithm>
#include <cstddef>

#include "common/base/time.hpp"

namespace sgd::worker {

class StoreChoice {
 public:
  /// Two in a row in each way, again and again: so each way meets the messages of a bucketed sum, large and small.
  static constexpr int kTried = 32;
  /// Below, the ways differ too little to be told apart by a clock.
  static constexpr std::size_t kLeastBytes = std::size_t{512} << 10;

  /// For an operation of `bytes`.
  [[nodiscard]] bool is_past_caches(std::size_t bytes) const {
    if (!is_made()) return bytes >= kLeastBytes && tried_ / 2 % 2 == 1;
    return past_ < through_;
  }
  [[nodiscard]] bool is_made() const { return tried_ >= kTried; }

  /// An operation of `bytes` was done; it took `spent` to read and write, waits for others not counted.
  void note(std::size_t bytes, Duration spent) {
    if (is_made() || bytes < kLeastBytes) return;
    double& least = is_past_caches(bytes) ? past_ : through_;
    least = std::min(least, to_seconds(spent) / static_cast<double>(bytes));
    ++tried_;
  }

 private:
  int tried_ = 0;
  double past_ = 1e9;  // The least so far, s per byte.
  double through_ = 1e9;
};

}  // namespace sgd::worker
