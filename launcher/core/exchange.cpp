#include "launcher/core/exchange.hpp"

#include <fmt/format.h>

namespace sgd::core {

namespace {

std::size_t text_bytes(const nlohmann::json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).size();
}

}  // namespace

void ExchangeTable::reset(int world_size) {
  world_size_ = world_size;
  values_.clear();
  bytes_ = 0;
}

Result<bool> ExchangeTable::put(Rank rank, const std::string& key, nlohmann::json value) {
  if (rank < 0 || rank >= world_size_) return Error{fmt::format("exchange \"{}\": no rank {}", key, rank)};
  if (key.size() > kKeyBytesMax)
    return Error{fmt::format("an exchange's key of {} bytes; {} may be used", key.size(), kKeyBytesMax)};
  if (!values_.contains(key) && values_.size() >= kKeysMax)
    return Error{fmt::format("exchange \"{}\": more than {} keys in one generation", key, kKeysMax)};
  const std::size_t bytes = text_bytes(value);
  if (bytes > kValueBytesMax)
    return Error{fmt::format("exchange \"{}\": the value of rank {} has {} bytes; {} may be given", key, rank, bytes,
                             kValueBytesMax)};
  auto& row = values_[key];
  const auto [place, inserted] = row.emplace(rank, value);
  if (!inserted && place->second != value)
    return Error{fmt::format("exchange \"{}\": rank {} gave two different values", key, rank)};
  if (!inserted) return false;
  bytes_ += bytes + key.size();
  if (bytes_ > kBytesMax)
    return Error{fmt::format("exchange \"{}\": the values of one generation have {} bytes by now; {} may be exchanged",
                             key, bytes_, kBytesMax)};
  return static_cast<int>(row.size()) == world_size_;
}

std::vector<cluster::ExchangeDone> ExchangeTable::parts(const RunId& run, Generation generation,
                                                        const std::string& key) const {
  std::vector<cluster::ExchangeDone> parts;
  const auto row = values_.find(key);
  if (row == values_.end() || static_cast<int>(row->second.size()) < world_size_) {
    parts.push_back({run, generation, key, 0, 0, {}});
    return parts;
  }
  std::size_t bytes = 0;
  for (const auto& [rank, value] : row->second) {
    const std::size_t more = text_bytes(value) + 1;
    if (parts.empty() || bytes + more > kMessageBytes) {
      parts.push_back({run, generation, key, rank, world_size_, {}});
      bytes = 0;
    }
    bytes += more;
    parts.back().values.push_back(value);
  }
  return parts;
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
