#include "common/base/mean_over_ranks.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <utility>

#include "common/base/assert.hpp"

namespace sgd {

std::vector<double> weights_of_ranks(std::vector<double> samples) {
  const bool is_even = std::adjacent_find(samples.begin(), samples.end(), std::not_equal_to<>()) == samples.end();
  if (is_even) std::fill(samples.begin(), samples.end(), 1.0);
  return samples;
}

std::optional<double> mean_over_ranks(const std::vector<std::optional<double>>& values,
                                      const std::vector<double>& weights) {
  SGD_ASSERT(values.size() == weights.size());
  double total = 0;
  double weight = 0;
  std::optional<double> common;
  bool is_common = true;
  for (std::size_t rank = 0; rank < values.size(); ++rank) {
    const std::optional<double>& value = values[rank];
    if (!value || std::isnan(*value)) continue;
    if (std::isinf(*value) && weights[rank] == 0) continue;  // Else their product made the mean NaN.
    total += *value * weights[rank];
    weight += weights[rank];
    is_common = is_common && common.value_or(*value) == *value;
    common = value;
  }
  if (weight == 0) return std::nullopt;
  return is_common ? *common : total / weight;
}

}  // namespace sgd
