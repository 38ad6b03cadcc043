#pragma once
// The writing side of memory checkpoints, on the leader of a node (local rank 0): when one is due,
// the copy itself, and the thread that gets the memory for it behind training.
//
//   made -> start() -> pages come, in the background -> ready -> commits
//
// Until it is ready no copy is made and training is never held for it. The interval keeps what the
// copies cost below 1 % of the time. A copy that there is no memory for is left out: those before it stay,
// and it is tried again after a while.

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <thread>

#include "common/base/ids.hpp"
#include "common/base/time.hpp"
#include "worker/core/memory_checkpoint.hpp"
#include "worker/torch/state_parts.hpp"

namespace sgd::worker {

/// When the next copy is due, from what the last ones have cost. A value; reads no clock.
class CopyPace {
 public:
  static constexpr Duration kIntervalMin = std::chrono::milliseconds(50);
  static constexpr int kCostFraction = 100;  ///< An interval is at least this many costs long.

  [[nodiscard]] bool due(TimePoint now) const { return now >= next_; }
  /// A copy that has held training from `began` to `ended`.
  void add(TimePoint began, TimePoint ended);

 private:
  static constexpr int kCosts = 4;  // Their mean counts: one that met a busy machine does not hold up the next.

  Duration costs_[kCosts] = {};
  int count_ = 0;
  TimePoint next_{};
};

class MemorySaver {
 public:
  /// `fd` is the node's memory checkpoint. `region` is its mapping when it has this layout, else null: it is made
  /// anew. Null when that fails, with a warning: training does without.
  [[nodiscard]] static std::unique_ptr<MemorySaver> make(int fd, Generation generation, const MemoryLayout& layout,
                                                         std::unique_ptr<MemoryCheckpoint> region);
  ~MemorySaver();
  MemorySaver(const MemorySaver&) = delete;
  MemorySaver& operator=(const MemorySaver&) = delete;

  /// Gets the memory behind training. Idempotent.
  void start();

  [[nodiscard]] bool due(TimePoint now) const { return ready() && pace_.due(now) && !waits_after_failure(now); }
  /// How long no copy is tried after one that failed.
  static constexpr Duration kRetry = std::chrono::seconds(10);

  /// Copies the state when the memory is there; the text in pieces, as in MemoryCheckpoint. `began` is when training
  /// was held for it, and `held` for how long, where it is not until now. An error is a warning, once until a copy
  /// succeeds.
  void commit(const MemoryPoint& point, std::span<const std::string_view> text, const StateParts& state,
              TimePoint began, std::optional<Duration> held = {});

  /// The slot holds what training went on from: it counts as this generation's.
  void adopt(int slot) { region_->restamp(slot, generation_); }
  void set_live_step(std::int64_t step) { region_->set_live_step(step); }

 private:
  MemorySaver(Generation generation, std::unique_ptr<MemoryCheckpoint> region);
  [[nodiscard]] bool waits_after_failure(TimePoint now) const { return failed_ && now < *failed_ + kRetry; }
  [[nodiscard]] bool ready() const { return ready_.load(std::memory_order_acquire); }
  void populate();

  Generation generation_;
  std::unique_ptr<MemoryCheckpoint> region_;
  CopyPace pace_;
  std::optional<TimePoint> failed_;  // The last copy has.
  std::atomic<bool> ready_{false};
  std::atomic<bool> cancelled_{false};
  std::thread thread_;
};

}  // namespace sgd::worker
