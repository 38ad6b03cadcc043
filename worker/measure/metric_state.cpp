#include "worker/measure/metric_state.hpp"

#include <bit>
#include <limits>
#include <stdexcept>

namespace sgd::worker {
namespace {

/// A number from 0 to 2^63 - 1.
bool is_count_value(const nlohmann::json& value) {
  return value.is_number_integer() && value.get<std::int64_t>() >= 0;
}

const nlohmann::json& field_of(const nlohmann::json& state, const std::string& metric, const char* key) {
  const auto found = state.find(key);
  if (found == state.end()) bad_metric_state(metric, std::string(key) + " is missing");
  return *found;
}

}  // namespace

void bad_metric_state(const std::string& metric, const std::string& what) {
  throw std::invalid_argument("the state of " + metric + ": " + what);
}

std::int64_t count_in(const nlohmann::json& state, const std::string& metric, const char* key) {
  const nlohmann::json& value = field_of(state, metric, key);
  if (!is_count_value(value)) bad_metric_state(metric, std::string(key) + " is no count");
  return value.get<std::int64_t>();
}

std::vector<std::int64_t> counts_in(const nlohmann::json& state, const std::string& metric, const char* key) {
  const nlohmann::json& list = field_of(state, metric, key);
  if (!list.is_array()) bad_metric_state(metric, std::string(key) + " is no list");
  std::vector<std::int64_t> counts;
  for (const nlohmann::json& value : list) {
    if (!is_count_value(value)) bad_metric_state(metric, std::string(key) + " has what is no count");
    counts.push_back(value.get<std::int64_t>());
  }
  return counts;
}

std::uint64_t bits_of_double(double value) {
  return std::bit_cast<std::uint64_t>(value);
}

double double_in(const nlohmann::json& state, const std::string& metric, const char* key) {
  const nlohmann::json& value = field_of(state, metric, key);
  if (!value.is_number_unsigned()) bad_metric_state(metric, std::string(key) + " is no number's bits");
  return std::bit_cast<double>(value.get<std::uint64_t>());
}

double share_of(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace sgd::worker
