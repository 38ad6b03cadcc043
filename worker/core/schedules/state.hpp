#pragma once
// Reading a schedule's state back. An error names the field.

#include <cstdint>
#include <string>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::worker {

/// A whole number of at least 0.
[[nodiscard]] Result<std::int64_t> count_in(const nlohmann::json& state, const std::string& key);
/// A double that was written as the integer of its bits.
[[nodiscard]] Result<double> bits_in(const nlohmann::json& state, const std::string& key);

}  // namespace sgd::worker
