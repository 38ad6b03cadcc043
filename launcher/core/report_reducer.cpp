#include "launcher/core/report_reducer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "common/base/bytes.hpp"
#include "common/base/mean_over_ranks.hpp"
#include "common/messages/codec.hpp"

namespace sgd::core {
namespace {

auto order(const link::ReportKey& key) {
  return std::make_tuple(key.epoch, key.phase == "train" ? 0 : 1, key.phase, key.batch, key.sequence);
}

/// NaN travels as null, an infinite number as text.
std::optional<double> number(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  return codec::infinity_of(value);
}

bool is_summed(const std::string& key) {
  return key == "num_samples" || key == "samples_per_s";
}

/// Null (NaN) when a rank lacks the key.
nlohmann::json sum(const std::vector<nlohmann::json>& per_rank, const std::string& key) {
  double total = 0;
  std::int64_t exact = 0;
  bool is_exact = true;
  for (const auto& metrics : per_rank) {
    const auto value = metrics.find(key);
    if (value == metrics.end() || !value->is_number()) return nullptr;
    total += value->get<double>();
    const bool fits = value->is_number_integer() &&
                      !(value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t{INT64_MAX});
    is_exact = is_exact && fits && !__builtin_add_overflow(exact, value->get<std::int64_t>(), &exact);
  }
  if (is_exact) return exact;
  return total;
}

/// Ranks that do not all say how many samples they have count alike.
std::vector<double> weights_of(const std::vector<nlohmann::json>& per_rank) {
  std::vector<double> samples;
  for (const auto& metrics : per_rank) {
    const auto own = metrics.find("num_samples");
    if (own == metrics.end() || !own->is_number()) return std::vector<double>(per_rank.size(), 1.0);
    samples.push_back(own->get<double>());
  }
  return weights_of_ranks(std::move(samples));
}

bool is_of_the_last_batch(const std::string& key) {
  return key.starts_with("last_");
}

nlohmann::json mean(const std::vector<nlohmann::json>& per_rank, const std::vector<double>& weights,
                    const std::string& key) {
  std::vector<std::optional<double>> values;
  for (const auto& metrics : per_rank) {
    const auto value = metrics.find(key);
    values.push_back(value == metrics.end() ? std::nullopt : number(*value));
  }
  const std::optional<double> mean = mean_over_ranks(values, weights);
  return mean && std::isfinite(*mean) ? nlohmann::json(*mean) : nlohmann::json(nullptr);
}

/// The keys of `metrics`: RaySGD's in its own order, then the others by name.
std::vector<std::string> ordered_keys(const nlohmann::json& metrics) {
  static constexpr std::array kFirst = {"epoch",         "batch_count",     "num_samples",
                                        "train_loss",    "last_train_loss", "val_loss",
                                        "last_val_loss", "val_accuracy",    "last_val_accuracy"};
  std::vector<std::string> keys;
  for (const char* key : kFirst)
    if (metrics.contains(key)) keys.emplace_back(key);
  for (const auto& [key, value] : metrics.items())
    if (std::find(kFirst.begin(), kFirst.end(), key) == kFirst.end()) keys.push_back(key);
  return keys;
}

/// Rank 0's. Where it had no sample of this part, it has no means either: then those of the first rank that had some.
nlohmann::json leading(const std::vector<nlohmann::json>& per_rank) {
  nlohmann::json first = per_rank.front();
  if (has_samples(first)) return first;
  const auto other = std::find_if(per_rank.begin(), per_rank.end(), has_samples);
  if (other == per_rank.end() || !other->is_object()) return first;
  for (const auto& [key, value] : other->items())
    if (!first.contains(key)) first[key] = value;
  return first;
}

}  // namespace

std::string words(const link::ReportKey& key) {
  return fmt::format("epoch {} {} batch {}", key.epoch, key.phase, key.batch);
}

nlohmann::ordered_json in_order(const nlohmann::json& metrics) {
  nlohmann::ordered_json ordered = nlohmann::ordered_json::object();
  for (const std::string& key : ordered_keys(metrics)) ordered[key] = metrics.at(key);
  return ordered;
}

bool less(const link::ReportKey& left, const link::ReportKey& right) {
  return order(left) < order(right);
}

nlohmann::ordered_json reduce_metrics(const std::vector<nlohmann::json>& per_rank) {
  SGD_ASSERT(!per_rank.empty());
  nlohmann::ordered_json reduced = nlohmann::ordered_json::object();
  if (!per_rank.front().is_object()) return reduced;
  const std::vector<double> weights = weights_of(per_rank);
  const std::vector<double> even(per_rank.size(), 1.0);
  const nlohmann::json first = leading(per_rank);
  for (const std::string& key : ordered_keys(first)) {
    const nlohmann::json& value = first.at(key);
    if (is_summed(key)) {
      reduced[key] = sum(per_rank, key);
    } else if (number(value)) {
      reduced[key] = mean(per_rank, is_of_the_last_batch(key) ? even : weights, key);
    } else {
      reduced[key] = value;
    }
  }
  return reduced;
}

void ReportReducer::reset(int world_size) {
  pending_.assign(static_cast<std::size_t>(world_size), {});
  pending_bytes_ = 0;
}

Result<std::optional<ReducedReport>> ReportReducer::add(Rank rank, const link::ReportKey& key,
                                                        const nlohmann::json& metrics) {
  using Nothing = std::optional<ReducedReport>;
  if (rank < 0 || rank >= static_cast<int>(pending_.size()))
    return Error{fmt::format("report of unknown rank {}", rank)};
  if (!metrics.is_object()) return Error{fmt::format("report of rank {}: its metrics are not an object", rank)};
  if (written_ && !less(*written_, key)) {
    if (rank == 0) ++dropped_;
    return Nothing{};
  }
  auto& own = pending_[static_cast<std::size_t>(rank)];
  if (own.size() >= kPendingMax)
    return Error{fmt::format("rank {} is {} reports ahead of the slowest rank", rank, kPendingMax)};
  constexpr std::size_t kBesides = 128;  // Its key, and its place.
  const std::size_t bytes = kBesides + metrics.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).size();
  // The others wait for a rank that has nothing here: what it brings makes room.
  if (!own.empty() && pending_bytes_ + bytes > pending_bytes_max())
    return Error{
        fmt::format("rank {} is {} reports ahead of the slowest rank, and all that wait for it take more "
                    "than {}",
                    rank, own.size(), format_bytes(static_cast<std::int64_t>(pending_bytes_max())))};
  own.push_back({key, metrics, bytes});
  pending_bytes_ += bytes;
  for (const auto& queue : pending_)
    if (queue.empty()) return Nothing{};
  std::vector<nlohmann::json> per_rank;
  const link::ReportKey expected = pending_.front().front().key;
  for (std::size_t other = 0; other < pending_.size(); ++other) {
    const link::ReportKey& given = pending_[other].front().key;
    if (order(given) != order(expected))
      return Error{
          fmt::format("ranks report different keys: rank 0 {}, rank {} {}", words(expected), other, words(given))};
    per_rank.push_back(std::move(pending_[other].front().metrics));
    pending_bytes_ -= pending_[other].front().bytes;
    pending_[other].pop_front();
  }
  written_ = expected;
  ReducedReport line{expected, reduce_metrics(per_rank), {}, find_mismatches(per_rank), find_straggler(per_rank)};
  for (nlohmann::json& reported : per_rank) codec::infinity_texts_to_null(reported);
  line.per_rank = std::move(per_rank);
  return Nothing{std::move(line)};
}

std::size_t ReportReducer::pending_bytes_max() const {
  return std::max(kPendingBytesMax, pending_.size() * kPendingBytesOfOne);
}

std::optional<link::ReportKey> ReportReducer::newest_pending(Rank rank) const {
  const auto& own = pending_[static_cast<std::size_t>(rank)];
  if (own.empty()) return std::nullopt;
  return own.back().key;
}

std::optional<UnequalReports> ReportReducer::unequal() const {
  const auto has_more = std::find_if(pending_.begin(), pending_.end(), [](const auto& own) { return !own.empty(); });
  const auto has_less = std::find_if(pending_.begin(), pending_.end(), [](const auto& own) { return own.empty(); });
  if (has_more == pending_.end() || has_less == pending_.end()) return std::nullopt;
  return UnequalReports{static_cast<Rank>(has_more - pending_.begin()),
                        fmt::format("it has reported {}, and rank {} has not: all ranks must report equally often",
                                    words(has_more->front().key), has_less - pending_.begin())};
}

bool ReportReducer::has_pending() const {
  return std::any_of(pending_.begin(), pending_.end(), [](const auto& own) { return !own.empty(); });
}

}  // namespace sgd::core
