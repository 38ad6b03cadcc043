#pragma once
// How population based training changes a copied trial's values: each parameter is drawn anew with some probability,
// else changed a little: a number is multiplied by one of some factors and brought back into its domain, of a list its
// neighbour is taken. As Ray Tune's, except that a value never leaves its domain.

#include <string>
#include <vector>

#include "launcher/tune/parameters.hpp"

namespace sgd::tune {

struct ExploreRules {
  double resample_probability = 0.25;
  std::vector<double> factors{0.8, 1.2};  ///< At least one, above 0.
  std::vector<std::string> mutates;       ///< Parameters that are changed; the others are copied.
};

struct Explored {
  Values values;
  std::vector<std::string> changes;  ///< "training.optimizer.lr * 0.8", "... drawn anew".
};

/// `round`: how often it was done for `trial` before.
[[nodiscard]] Explored explore(const Values& values, const Parameters& parameters, const ExploreRules& rules,
                               std::uint64_t seed, TrialId trial, std::uint64_t round);

}  // namespace sgd::tune
