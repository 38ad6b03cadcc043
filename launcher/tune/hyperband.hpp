#pragma once
// Hyperband (Li et al. 2016): brackets of successive halving, from many short trials to few long ones, and over again.
// With s_max the largest s with factor^s <= last, bracket s has ceil((s_max + 1) * factor^s / (s + 1)) trials, and its
// rungs are last / factor^s, ..., last / factor, last, rounded down. New trials fill the newest bracket. Its trials
// wait for each other at a rung; when all of them have come there, one of `factor` goes on, rounded down, at least one;
// the others end.
//   no number at a rung                      ends; what is left is halved
//   a trial that ends by itself              leaves; what is left is halved
//   a report that passes several rungs       stands for the bracket's next rung
//   no more trials                           brackets that are not full go on with what they have
//   at `last`                                ends

#include <map>
#include <set>
#include <vector>

#include "launcher/tune/metric.hpp"
#include "launcher/tune/scheduler.hpp"

namespace sgd::tune {

struct HyperbandRules {
  Mode mode = Mode::kMin;
  std::int64_t last = 81;
  std::int64_t factor = 3;
};

class Hyperband : public Scheduler {
 public:
  explicit Hyperband(const HyperbandRules& rules);

  /// How many trials bracket `s` has.
  [[nodiscard]] std::int64_t capacity(int s) const;
  /// The rungs of bracket `s`, rising; the last is what a trial may have at most.
  [[nodiscard]] std::vector<std::int64_t> rungs_of(int s) const;
  [[nodiscard]] int s_max() const { return s_max_; }

 private:
  struct Bracket {
    int s = 0;
    std::int64_t taken = 0;             ///< Trials that it was given.
    int round = 0;                      ///< The next rung.
    std::set<TrialId> going;            ///< Not yet at it: they run, or wait to be resumed.
    std::map<TrialId, double> waiting;  ///< At it, with their values.
  };
  void added(TrialId trial, const Values& values) override;
  Decision reported(const Report& report) override;
  void ended(TrialId trial, Outcome outcome) override;
  Decisions settled() override;
  [[nodiscard]] std::optional<Decision> chosen(bool others_wait) const override;
  void resumed(TrialId trial) override;
  void values_set(TrialId, const Values&) override {}
  [[nodiscard]] nlohmann::json own_state() const override;
  bool restore(const nlohmann::json& state) override;

  /// All are at the rung, and none will join them.
  [[nodiscard]] bool is_complete(const Bracket& bracket) const;
  /// Sends the best on and puts the others' ends into `losers_`.
  void halve(int number);

  struct Ready {
    std::int64_t iteration = 0;  ///< The rung that it goes on from.
    double value = 0;
    std::int64_t others = 0;
  };

  HyperbandRules rules_;
  int s_max_ = 0;
  int made_ = 0;                                    ///< Brackets so far; the newest is made_ - 1.
  std::map<int, Bracket> brackets_;                 ///< That have trials left, by number; the newest in any case.
  std::map<TrialId, int> bracket_of_;               ///< Of trials that have not ended.
  std::map<std::pair<int, TrialId>, Ready> ready_;  ///< Paused trials that are to go on; older brackets first.
  Decisions losers_;                                ///< Of the event at hand.
};

}  // namespace sgd::tune
