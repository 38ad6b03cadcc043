#pragma once
// What a number of ranks' measurements is, as one: in a report, and wherever a rank decides by what will be reported.

#include <optional>
#include <vector>

namespace sgd {

/// How much each rank counts: by its samples. Ranks have equally many, except in a pass that has gone on with another
/// number of ranks, or over streams. Where they have, each counts 1: the same mean with fewer roundings.
[[nodiscard]] std::vector<double> weights_of_ranks(std::vector<double> samples);

/// The mean over ranks, in their order; nothing where none has a value. A value that is missing or NaN is left out, and
/// with an infinite one the mean is not finite. Where all have the same one it is that, to the bit. `values` and
/// `weights` have one of each rank.
[[nodiscard]] std::optional<double> mean_over_ranks(const std::vector<std::optional<double>>& values,
                                                    const std::vector<double>& weights);

}  // namespace sgd
