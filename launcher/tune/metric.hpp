#pragma once
// Which value of a report is meant by a metric's name, and how values are compared: the direction, and percentiles. No
// value that is compared is NaN.

#include <string>
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

/// What `name` means in a report, "val/loss" that is called so or the "loss" in "val", as callbacks name them; null:
/// nothing. `Json` is an object of nlohmann's.
template <class Json>
[[nodiscard]] const Json* find_value(const Json& report, const std::string& name) {
  if (const auto whole = report.find(name); whole != report.end()) return &*whole;
  for (std::size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
    const auto outer = report.find(name.substr(0, slash));
    if (outer == report.end() || !outer->is_object()) continue;
    if (const Json* inner = find_value(*outer, name.substr(slash + 1))) return inner;
  }
  return nullptr;
}

/// The value below which `percent` of `sorted` are, which rises and is not empty; between two by linear interpolation,
/// in the order of operations of NumPy's, so that ties are those of others' schedulers.
[[nodiscard]] double percentile(const std::vector<double>& sorted, double percent);

void insert_sorted(std::vector<double>& sorted, double value);

}  // namespace sgd::tune
