#pragma once
// How values of the metric are compared: the direction, and percentiles. No value here is NaN.

#include <vector>

namespace sgd::tune {

enum class Mode {
  kMin,  ///< Smaller is better.
  kMax,  ///< Larger is better.
};

/// What is better is larger; its own inverse.
[[nodiscard]] inline double score_of(Mode mode, double value) {
  return mode == Mode::kMax ? value : -value;
}

/// The value below which `percent` of `sorted` are, which rises and is not empty; between two by linear interpolation,
/// in the order of operations of NumPy's, so that ties are those of others' schedulers.
[[nodiscard]] double percentile(const std::vector<double>& sorted, double percent);

void insert_sorted(std::vector<double>& sorted, double value);

}  // namespace sgd::tune
