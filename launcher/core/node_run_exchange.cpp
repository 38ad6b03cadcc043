// What NodeRun does with exchanges: values of its ranks go up as facts, the finished set comes down in parts.

#include <functional>

#include <fmt/format.h>

#include "launcher/core/exchange.hpp"
#include "launcher/core/node_run.hpp"

namespace sgd::core {

std::string NodeRun::give(Rank rank, RankRecord& record, const link::ExchangePut& put) {
  if (put.key.size() > ExchangeTable::kKeyBytesMax)
    return fmt::format("an exchange's key of {} bytes; {} may be used", put.key.size(), ExchangeTable::kKeyBytesMax);
  const std::string text = put.value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto [place, is_new] = record.given.emplace(put.key, std::hash<std::string>{}(text));
  if (record.given.size() > ExchangeTable::kKeysMax)
    return fmt::format("exchange \"{}\": more than {} keys in one generation", put.key, ExchangeTable::kKeysMax);
  if (place->second != std::hash<std::string>{}(text))
    return fmt::format("exchange \"{}\": rank {} gave two different values", put.key, rank);
  record.unanswered.insert(put.key);
  if (is_new)
    say(cluster::ExchangePut{rank, put.key, put.value});
  else
    asks_out_.push_back(put.key);
  return {};
}

std::set<std::string> NodeRun::awaited() const {
  std::set<std::string> keys;
  for (const auto& [rank, record] : ranks_) keys.insert(record.unanswered.begin(), record.unanswered.end());
  return keys;
}

/// Parts come in order; the first one begins anew.
void NodeRun::on_exchange_done(const cluster::ExchangeDone& part, AgentCommands& out) {
  const bool is_awaited = part.generation == spawned_ && part.count > 0 && awaited().contains(part.key);
  if (!is_awaited) return;
  std::vector<nlohmann::json>& values = arriving_[part.key];
  if (part.first == 0) values.clear();
  if (static_cast<int>(values.size()) != part.first) return;
  values.insert(values.end(), part.values.begin(), part.values.end());
  if (static_cast<int>(values.size()) < part.count) return;
  for (auto& [rank, record] : ranks_) {
    if (record.unanswered.erase(part.key) == 0 || !record.connection) continue;
    for (int from = 0; from < part.count; ++from)
      out.push_back(agent_command::TellWorker{
          *record.connection, id_,
          link::ExchangeValue{part.key, from, part.count, values[static_cast<std::size_t>(from)]}});
  }
  arriving_.erase(part.key);
}

}  // namespace sgd::core
