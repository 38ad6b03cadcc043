#include "launcher/tune/metric.hpp"

#include <algorithm>
#include <cmath>

#include "common/base/assert.hpp"

namespace sgd::tune {

double percentile(const std::vector<double>& sorted, double percent) {
  SGD_ASSERT(!sorted.empty());
  const double place = percent / 100 * static_cast<double>(sorted.size() - 1);
  const double below = std::floor(place);
  const auto index = static_cast<std::size_t>(below);
  const double a = sorted[index];
  const double b = sorted[std::min(index + 1, sorted.size() - 1)];
  if (a == b) return a;
  const double part = place - below;
  return part >= 0.5 ? b - (b - a) * (1 - part) : a + (b - a) * part;
}

void insert_sorted(std::vector<double>& sorted, double value) {
  sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), value), value);
}

}  // namespace sgd::tune
