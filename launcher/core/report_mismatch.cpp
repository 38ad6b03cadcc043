#include "launcher/core/report_mismatch.hpp"

#include <set>

namespace sgd::core {

bool has_samples(const nlohmann::json& metrics) {
  const auto samples = metrics.find("num_samples");
  return samples == metrics.end() || !samples->is_number() || samples->get<double>() > 0;
}

std::vector<KeyMismatch> find_mismatches(const std::vector<nlohmann::json>& per_rank) {
  std::set<std::string> keys;
  bool is_first = true;
  bool is_alike = true;
  for (const nlohmann::json& metrics : per_rank) {
    if (!has_samples(metrics)) continue;
    const std::size_t before = keys.size();
    for (const auto& item : metrics.items()) keys.insert(item.key());
    is_alike = is_alike && (is_first || (keys.size() == before && metrics.size() == before));
    is_first = false;
  }
  std::vector<KeyMismatch> found;
  if (is_alike) return found;
  for (const std::string& key : keys) {
    KeyMismatch mismatch{key, {}};
    for (std::size_t rank = 0; rank < per_rank.size(); ++rank)
      if (has_samples(per_rank[rank]) && !per_rank[rank].contains(key))
        mismatch.without.push_back(static_cast<Rank>(rank));
    if (!mismatch.without.empty()) found.push_back(std::move(mismatch));
  }
  return found;
}

}  // namespace sgd::core
