#include "worker/core/step_timer.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/base/assert.hpp"

namespace sgd::worker {
namespace {

// Values below 2^(sub_bits+1) have a bucket of their own; above, the leading sub_bits+1 bits choose it.
std::size_t bucket_of(std::uint64_t value, int sub_bits) {
  const int shift = std::bit_width(value | 1) - 1 - sub_bits;
  if (shift <= 0) return static_cast<std::size_t>(value);
  return (static_cast<std::size_t>(shift) << sub_bits) + static_cast<std::size_t>(value >> shift);
}

double middle_of(std::size_t bucket, int sub_bits) {
  const std::size_t per_octave = std::size_t{1} << sub_bits;
  if (bucket < 2 * per_octave) return static_cast<double>(bucket);
  const std::size_t shift = (bucket >> sub_bits) - 1;
  const auto low = static_cast<double>((bucket - (shift << sub_bits)) << shift);
  return low + std::ldexp(0.5, static_cast<int>(shift)) - 0.5;
}

}  // namespace

void StepTimer::add(Duration duration) {
  constexpr std::int64_t longest_ns = (std::int64_t{1} << 40) - 1;
  std::int64_t value = duration.count();
  if (value < 0) value = 0;
  if (value > longest_ns) value = longest_ns;
  const std::size_t bucket = bucket_of(static_cast<std::uint64_t>(value), kSubBits);
  SGD_ASSERT(bucket < kBuckets);
  ++buckets_[bucket];
  ++count_;
}

double StepTimer::quantile_ms(double quantile) const {
  if (count_ == 0) return 0;
  auto wanted = static_cast<std::int64_t>(std::ceil(quantile * static_cast<double>(count_)));
  if (wanted < 1) wanted = 1;
  std::int64_t seen = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    seen += buckets_[bucket];
    if (seen >= wanted) return middle_of(bucket, kSubBits) * 1e-6;
  }
  return middle_of(kBuckets - 1, kSubBits) * 1e-6;
}

double StepTimer::mean_ms() const {
  constexpr double kKept = 0.99;
  const auto kept = std::max<std::int64_t>(1, static_cast<std::int64_t>(kKept * static_cast<double>(count_)));
  double sum_ns = 0;
  std::int64_t seen = 0;
  for (std::size_t bucket = 0; bucket < kBuckets && seen < kept; ++bucket) {
    const std::int64_t here = std::min<std::int64_t>(buckets_[bucket], kept - seen);
    sum_ns += middle_of(bucket, kSubBits) * static_cast<double>(here);
    seen += here;
  }
  return seen > 0 ? sum_ns / static_cast<double>(seen) * 1e-6 : 0;
}

void StepTimer::clear() {
  buckets_.fill(0);
  count_ = 0;
}

}  // namespace sgd::worker
