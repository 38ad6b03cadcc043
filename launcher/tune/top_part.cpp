#include "launcher/tune/top_part.hpp"

#include <iterator>

#include "common/base/assert.hpp"

namespace sgd::tune {

void TopPart::raise_best() {
  const Key key = *rest_.begin();
  rest_.erase(rest_.begin());
  top_.insert(key);
  if (waiting_.contains(key.second)) waiting_top_.insert(key);
}

void TopPart::lower_worst() {
  const Key key = *std::prev(top_.end());
  top_.erase(key);
  waiting_top_.erase(key);
  rest_.insert(key);
}

void TopPart::insert(TrialId trial, double score) {
  const bool is_new = waiting_.emplace(trial, -score).second;
  SGD_ASSERT(is_new);
  rest_.emplace(-score, trial);
  const auto wanted = static_cast<std::size_t>(size() / factor_);
  while (top_.size() < wanted) raise_best();
  // The new one may be better than the worst of the best.
  if (!top_.empty() && !rest_.empty() && *rest_.begin() < *std::prev(top_.end())) {
    raise_best();
    lower_worst();
  }
}

void TopPart::take(TrialId trial) {
  const auto found = waiting_.find(trial);
  if (found == waiting_.end()) return;
  waiting_top_.erase({found->second, trial});
  waiting_.erase(found);
}

std::optional<TrialId> TopPart::best_in_part() const {
  if (waiting_top_.empty()) return std::nullopt;
  return waiting_top_.begin()->second;
}

std::optional<TrialId> TopPart::best_waiting() const {
  std::optional<Key> best;
  for (const auto& [trial, negative] : waiting_)
    if (!best || Key(negative, trial) < *best) best = Key(negative, trial);
  if (!best) return std::nullopt;
  return best->second;
}

nlohmann::json TopPart::state() const {
  nlohmann::json came = nlohmann::json::array();
  for (const std::set<Key>* part : {&top_, &rest_})
    for (const auto& [negative, trial] : *part) came.push_back({trial, -negative, waiting_.contains(trial)});
  return came;
}

bool TopPart::restore(const nlohmann::json& state) {
  std::set<TrialId> known;
  for (const nlohmann::json& one : state) {
    const auto trial = one.at(0).get<TrialId>();
    if (!known.insert(trial).second) return false;
    insert(trial, one.at(1).get<double>());
  }
  for (const nlohmann::json& one : state)
    if (!one.at(2).get<bool>()) take(one.at(0).get<TrialId>());
  return true;
}

}  // namespace sgd::tune
