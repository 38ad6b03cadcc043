#include "launcher/core/straggler.hpp"

#include <algorithm>

#include "common/json/lenient.hpp"

namespace sgd::core {
namespace {

/// Nothing when the rank says none, or has done too little to be judged by it.
std::optional<double> own_ms(const nlohmann::json& metrics) {
  if (!metrics.is_object()) return std::nullopt;
  const auto count = metrics.find("batch_count");
  if (count == metrics.end() || !count->is_number() || count->get<double>() < kStragglerBatches) return std::nullopt;
  const auto times = metrics.find("step_ms");
  if (times == metrics.end() || !times->is_object()) return std::nullopt;
  const auto own = times->find("own");
  if (own == times->end() || !own->is_number()) return std::nullopt;
  return own->get<double>();
}

}  // namespace

std::optional<Straggler> find_straggler(const std::vector<nlohmann::json>& per_rank) {
  if (per_rank.size() < 2) return std::nullopt;
  std::vector<double> times;
  for (const nlohmann::json& metrics : per_rank) {
    const std::optional<double> own = own_ms(metrics);
    if (!own) return std::nullopt;
    times.push_back(*own);
  }
  const auto slowest = std::max_element(times.begin(), times.end());
  Straggler found{static_cast<Rank>(slowest - times.begin()), *slowest, 0};
  times.erase(slowest);
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  found.others_ms = *middle;
  if (found.own_ms < kStragglerFactor * found.others_ms) return std::nullopt;
  const double cost_ms = found.own_ms - found.others_ms;
  const nlohmann::json& step = per_rank[static_cast<std::size_t>(found.rank)].at("step_ms");
  if (cost_ms < kStragglerCostMs || cost_ms < kStragglerCostPart * read_or(step, "median", 0.0)) return std::nullopt;
  return found;
}

}  // namespace sgd::core
