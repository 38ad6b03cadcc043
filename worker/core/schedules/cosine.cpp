#include "worker/core/schedules/cosine.hpp"

#include <cmath>

namespace sgd::worker {
namespace {

// Half of pi in two parts. The first has 32 bits, so that its products with up to 2^32 quarter turns are exact.
constexpr long double kQuarterHigh = 0x1.921fb544p+0L;
constexpr long double kQuarterLow = 0x1.0b4611a62633145cp-34L;

// Within an eighth of a turn the first term left out is below 2^-70.
constexpr int kTerms = 10;

/// 1 - x^2/2! + x^4/4! - ..., from the smallest term.
long double cosine_series(long double square) {
  long double sum = 0;
  for (int n = 2 * kTerms; n > 0; n -= 2) sum = (1 - sum) * square / static_cast<long double>(n * (n - 1));
  return 1 - sum;
}

/// x - x^3/3! + x^5/5! - ...
long double sine_series(long double x) {
  const long double square = x * x;
  long double sum = 0;
  for (int n = 2 * kTerms; n > 0; n -= 2) sum = (1 - sum) * square / static_cast<long double>(n * (n + 1));
  return x * (1 - sum);
}

}  // namespace

double cosine(double x) {
  const long double wide = x;
  const long double quarters = std::rint(wide / (kQuarterHigh + kQuarterLow));
  const long double rest = wide - quarters * kQuarterHigh - quarters * kQuarterLow;
  switch (static_cast<long long>(quarters) & 3) {
    case 0:
      return static_cast<double>(cosine_series(rest * rest));
    case 1:
      return static_cast<double>(-sine_series(rest));
    case 2:
      return static_cast<double>(-cosine_series(rest * rest));
    default:
      return static_cast<double>(sine_series(rest));
  }
}

}  // namespace sgd::worker
