#pragma once
// Reading the states of measurements, which come from checkpoints and other ranks: whatever is none is an error that
// names the measurement and the field. Doubles are kept as the integer of their bits.

#include <cstdint>
#include <string>
#include <vector>

#include "sgd/metrics.hpp"

namespace sgd::worker {

/// A count, from 0. Throws std::invalid_argument.
[[nodiscard]] std::int64_t count_in(const nlohmann::json& state, const std::string& metric, const char* key);
/// A list of counts. Throws std::invalid_argument.
[[nodiscard]] std::vector<std::int64_t> counts_in(const nlohmann::json& state, const std::string& metric,
                                                  const char* key);
[[nodiscard]] std::uint64_t bits_of_double(double value);
[[nodiscard]] double double_in(const nlohmann::json& state, const std::string& metric, const char* key);
/// Throws std::invalid_argument with this text.
[[noreturn]] void bad_metric_state(const std::string& metric, const std::string& what);

/// NaN without a denominator.
[[nodiscard]] double share_of(std::int64_t part, std::int64_t whole);

}  // namespace sgd::worker
