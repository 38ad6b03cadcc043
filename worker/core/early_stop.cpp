#include "worker/core/early_stop.hpp"

#include <bit>
#include <limits>

#include <fmt/format.h>

#include "common/json/lenient.hpp"

namespace sgd::worker {

EarlyStop::EarlyStop(const job::EarlyStop& settings) : settings_(settings), best_(worst()) {}

double EarlyStop::worst() const {
  const double infinity = std::numeric_limits<double>::infinity();
  return settings_.wants_least ? infinity : -infinity;
}

void EarlyStop::observe(int epoch, double value) {
  const bool is_better =
      settings_.wants_least ? value < best_ - settings_.min_delta : value > best_ + settings_.min_delta;
  if (!is_better) {
    ++without_;
    return;
  }
  best_ = value;
  best_epoch_ = epoch;
  without_ = 0;
}

std::string EarlyStop::reason() const {
  const std::string times = fmt::format("{} validation{}", without_, without_ == 1 ? "" : "s");
  if (best_epoch_ == 0) return fmt::format("{} has been no number in {}", settings_.metric, times);
  return fmt::format("{} has not got better than {:.6g} (epoch {}) in {}", settings_.metric, best_, best_epoch_, times);
}

nlohmann::json EarlyStop::state() const {
  return {{"metric", settings_.metric},
          {"least", settings_.wants_least},
          {"best_bits", std::bit_cast<std::uint64_t>(best_)},
          {"best_epoch", best_epoch_},
          {"without", without_}};
}

Status EarlyStop::load(const nlohmann::json& state) {
  best_ = worst();
  best_epoch_ = 0;
  without_ = 0;
  if (!state.is_object()) return {};
  if (read_or(state, "metric", "") != settings_.metric || read_or(state, "least", true) != settings_.wants_least)
    return {};
  const nlohmann::json& bits = member(state, "best_bits");
  const int best_epoch = read_or(state, "best_epoch", -1);
  const std::int64_t without = read_or(state, "without", std::int64_t{-1});
  if (!bits.is_number_unsigned() || best_epoch < 0 || without < 0) return Error{"early_stop has the wrong shape"};
  best_ = std::bit_cast<double>(bits.get<std::uint64_t>());
  best_epoch_ = best_epoch;
  without_ = without;
  return {};
}

}  // namespace sgd::worker
