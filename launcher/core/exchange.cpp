#include "launcher/core/exchange.hpp"

#include <fmt/format.h>

namespace sgd::core {

void ExchangeTable::reset(int world_size) {
  world_size_ = world_size;
  values_.clear();
}

Result<std::optional<std::vector<nlohmann::json>>> ExchangeTable::put(Rank rank, const std::string& key,
                                                                      nlohmann::json value) {
  if (rank < 0 || rank >= world_size_) return Error{fmt::format("exchange \"{}\": no rank {}", key, rank)};
  if (!values_.contains(key) && values_.size() >= kKeysMax)
    return Error{fmt::format("exchange \"{}\": more than {} keys in one generation", key, kKeysMax)};
  if (value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).size() > kValueBytesMax)
    return Error{fmt::format("exchange \"{}\": the value of rank {} is over {} bytes", key, rank, kValueBytesMax)};
  auto& row = values_[key];
  const auto [place, inserted] = row.emplace(rank, value);
  if (!inserted && place->second != value)
    return Error{fmt::format("exchange \"{}\": rank {} gave two different values", key, rank)};
  if (static_cast<int>(row.size()) < world_size_) return std::optional<std::vector<nlohmann::json>>{};
  std::vector<nlohmann::json> all;
  for (const auto& [owner, its_value] : row) all.push_back(its_value);
  return std::optional<std::vector<nlohmann::json>>{std::move(all)};
}

std::string ExchangeTable::waiting() const {
  for (const auto& [key, row] : values_) {
    if (static_cast<int>(row.size()) == world_size_) continue;
    std::string missing;
    int named = 0;
    for (Rank rank = 0; rank < world_size_ && named < 8; ++rank) {
      if (row.contains(rank)) continue;
      missing += fmt::format("{}{}", named == 0 ? "" : ", ", rank);
      ++named;
    }
    return fmt::format("exchange \"{}\": {} of {}, missing rank {}", key, row.size(), world_size_, missing);
  }
  return {};
}

}  // namespace sgd::core
