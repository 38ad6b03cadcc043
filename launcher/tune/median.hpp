#pragma once
// The median rule, as Optuna's MedianPruner has it: a trial ends when the best that it has reported so far is worse
// than the median of what complete trials reported at the same epoch.
//   a trial that this rule has ended, or that failed    is not complete: it never counts
//   equal to the median                                 goes on
//   no number                                           is left out; a trial that has reported none ends at a decision
//   a missing report                                    the decision is made at the next one

#include <map>
#include <utility>
#include <vector>

#include "launcher/tune/metric.hpp"
#include "launcher/tune/scheduler.hpp"

namespace sgd::tune {

struct MedianRules {
  Mode mode = Mode::kMin;
  std::int64_t startup_trials = 5;  ///< Trials that have to be complete first.
  std::int64_t warmup = 0;          ///< Nothing is decided before this epoch.
  std::int64_t interval = 1;        ///< Epochs between two decisions.
  std::int64_t least_trials = 1;    ///< Complete trials with a report at an epoch that make a median.
};

class MedianRule : public Scheduler {
 public:
  explicit MedianRule(const MedianRules& rules) : rules_(rules) {}

 private:
  /// What complete trials have reported at an epoch.
  struct Epoch {
    std::vector<double> values;  ///< Rising.
    std::int64_t no_numbers = 0;
  };
  struct Runner {
    std::vector<std::pair<std::int64_t, double>> reports;  ///< Epoch and value, which may be NaN.
    double best = 0;
    bool has_best = false;
  };
  void added(TrialId trial, const Values& values) override;
  Decision reported(const Report& report) override;
  void ended(TrialId trial, Outcome outcome) override;
  Decisions settled() override { return {}; }
  [[nodiscard]] std::optional<Decision> chosen(bool) const override { return std::nullopt; }
  void resumed(TrialId) override {}
  void values_set(TrialId, const Values&) override {}
  [[nodiscard]] nlohmann::json own_state() const override;
  bool restore(const nlohmann::json& state) override;

  void take(Runner& runner, std::int64_t iteration, double value) const;
  void count(std::int64_t iteration, double value);

  MedianRules rules_;
  std::int64_t complete_ = 0;
  std::map<std::int64_t, Epoch> epochs_;
  std::map<TrialId, Runner> runners_;
};

}  // namespace sgd::tune
