#pragma once
// Median and 95th percentile of step durations over an epoch, in bounded memory: a histogram
// with 128 buckets per power of two, so a quantile is within 0.4 % of the exact one. It reads
// no clock; the caller measures.

#include <array>
#include <cstdint>

#include "common/base/time.hpp"

namespace sgd::worker {

class StepTimer {
 public:
  /// Negative durations count as 0, durations over 18 minutes as 18 minutes.
  void add(Duration duration);

  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Milliseconds; 0 when nothing was added.
  [[nodiscard]] double median_ms() const { return quantile_ms(0.5); }
  [[nodiscard]] double p95_ms() const { return quantile_ms(0.95); }
  /// The smallest duration that at least a part `quantile` (0 .. 1) of all do not exceed.
  [[nodiscard]] double quantile_ms(double quantile) const;

  /// Milliseconds: the mean of all but the slowest 1 %, so that one long step is not many.
  [[nodiscard]] double mean_ms() const;

  void clear();

 private:
  static constexpr int kSubBits = 7;   // 128 buckets per octave.
  static constexpr int kOctaves = 34;  // Up to 2^40 ns.
  static constexpr std::size_t kBuckets = static_cast<std::size_t>(kOctaves) << kSubBits;

  std::array<std::uint32_t, kBuckets> buckets_{};
  std::int64_t count_ = 0;
};

}  // namespace sgd::worker
