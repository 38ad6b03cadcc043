#pragma once
// Where successive halving compares trials: whole numbers of epochs, each so many times the one before. In integers, so
// that no rung is lost to rounding.

#include <cstdint>
#include <optional>
#include <vector>

namespace sgd::tune {

/// first, first * factor, ... up to and including `last`. `first` is from 1 to `last`, `factor` at least 2.
[[nodiscard]] std::vector<std::int64_t> rungs(std::int64_t first, std::int64_t last, std::int64_t factor);

/// The index of the highest rung that `iteration` has come to; nothing below the first.
[[nodiscard]] std::optional<int> rung_at(const std::vector<std::int64_t>& rungs, std::int64_t iteration);

}  // namespace sgd::tune
