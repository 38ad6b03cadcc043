#include "worker/core/schedules/state.hpp"

#include <bit>
#include <limits>

namespace sgd::worker {
namespace {

/// Whether there is an integer of at least 0 and at most `largest` under `key`.
bool has_count(const nlohmann::json& state, const std::string& key, std::uint64_t largest) {
  if (!state.is_object() || !state.contains(key) || !state[key].is_number_integer()) return false;
  if (!state[key].is_number_unsigned() && state[key].get<std::int64_t>() < 0) return false;
  return state[key].get<std::uint64_t>() <= largest;
}

Error missing(const std::string& key) {
  return Error{"scheduler state: " + key + " is missing or not a count", 0};
}

}  // namespace

Result<std::int64_t> count_in(const nlohmann::json& state, const std::string& key) {
  if (!has_count(state, key, std::numeric_limits<std::int64_t>::max())) return missing(key);
  return state[key].get<std::int64_t>();
}

Result<double> bits_in(const nlohmann::json& state, const std::string& key) {
  if (!has_count(state, key, std::numeric_limits<std::uint64_t>::max())) return missing(key);
  return std::bit_cast<double>(state[key].get<std::uint64_t>());
}

}  // namespace sgd::worker
