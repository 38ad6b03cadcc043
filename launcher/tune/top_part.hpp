#pragma once
// The trials at a rung in the order of their scores, divided into the best part, one of `factor`, and the rest; and
// which of the best still wait to go on. Each step takes the logarithm of the trials, so that ten thousand cost no more
// than ten. Of equal scores the trial that was made first is better.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "launcher/tune/trial.hpp"

namespace sgd::tune {

class TopPart {
 public:
  explicit TopPart(std::int64_t factor) : factor_(factor) {}

  /// `trial` has not come here before; it waits.
  void insert(TrialId trial, double score);
  /// It goes on, or will never.
  void take(TrialId trial);

  [[nodiscard]] bool waits(TrialId trial) const { return waiting_.contains(trial); }
  /// The best of those that wait in the best part.
  [[nodiscard]] std::optional<TrialId> best_in_part() const;
  /// The best of all that wait.
  [[nodiscard]] std::optional<TrialId> best_waiting() const;
  /// All that ever came.
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(top_.size() + rest_.size()); }

  [[nodiscard]] nlohmann::json state() const;
  /// Of an empty one.
  [[nodiscard]] bool restore(const nlohmann::json& state);

 private:
  using Key = std::pair<double, TrialId>;  ///< The score's negative: the best is first.

  void raise_best();
  void lower_worst();

  std::int64_t factor_;
  std::set<Key> top_;
  std::set<Key> rest_;
  std::set<Key> waiting_top_;          ///< Of top_, those that wait.
  std::map<TrialId, double> waiting_;  ///< With the score's negative.
};

}  // namespace sgd::tune
