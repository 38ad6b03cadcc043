#pragma once
// Population based training (Jaderberg et al. 2017, as Ray Tune's, asynchronous). At each interval of its own a trial
// is ranked among all that have been ranked and not ended; one of the worst part goes on from a checkpoint of one of
// the best, chosen by chance, with values that differ a little (explore.hpp).
//   fewer than two ranked trials             nobody copies
//   equal values                             the trial that was made first counts as worse
//   no number                                it is worse than all, and copies wherever there is a number
//   a missing report                         the trial is ranked at the next one
//   a donor without that checkpoint          the copy is as far as the one that it got (Scheduler::on_copied)
//   others wait for room                     a trial gives its place at each ranking; who is furthest behind has it
//                                            next, and of several who has waited longest
// A copy is as far as its donor was when that was ranked last, and is ranked again an interval later.

#include <map>
#include <optional>
#include <vector>

#include "launcher/tune/explore.hpp"
#include "launcher/tune/metric.hpp"
#include "launcher/tune/scheduler.hpp"

namespace sgd::tune {

struct PbtRules {
  Mode mode = Mode::kMin;
  std::int64_t interval = 1;  ///< Epochs.
  std::int64_t burn_in = 0;   ///< Nobody is ranked before this epoch.
  double quantile = 0.25;     ///< The best and the worst part; above 0, at most a half.
  ExploreRules explore;
  Parameters parameters;
  std::uint64_t seed = 0;
};

class Pbt : public Scheduler {
 public:
  explicit Pbt(PbtRules rules) : rules_(std::move(rules)) {}

 private:
  struct One {
    Values values;
    std::optional<double> score;  ///< When it was ranked last; nothing before, and when it was no number.
    double value = 0;             ///< The same as the metric has it.
    std::int64_t ranked_at = 0;   ///< Epoch; 0: never.
    std::int64_t step = 0;        ///< At that report.
    std::uint64_t copies = 0;     ///< How often it has copied.
    std::uint64_t turn = 0;       ///< The larger, the later it was ranked last.
  };
  void added(TrialId trial, const Values& values) override;
  Decision reported(const Report& report) override;
  void ended(TrialId trial, Outcome outcome) override;
  Decisions settled() override { return {}; }
  [[nodiscard]] std::optional<Decision> chosen(bool others_wait) const override;
  void resumed(TrialId) override {}
  void values_set(TrialId trial, const Values& values) override;
  void copied(TrialId trial, std::int64_t iteration, std::int64_t step) override;
  [[nodiscard]] nlohmann::json own_state() const override;
  bool restore(const nlohmann::json& state) override;

  void copy(Decision& decision, const std::vector<TrialId>& donors);

  PbtRules rules_;
  std::map<TrialId, One> population_;  ///< Trials that have not ended.
  std::uint64_t turns_ = 0;
};

}  // namespace sgd::tune
