#pragma once
// Asynchronous successive halving by its stopping rule (Li et al. 2018, as Ray Tune's AsyncHyperBand has it). A trial
// that comes to a rung is compared with those that came there before it: it ends when it is worse than the part of
// 1/factor of them, and its value counts for those after it. Nobody waits for anybody.
//   the first at a rung                      goes on
//   equal to the bound                       goes on
//   no number at a rung                      ends, and does not count
//   a report that passes several rungs       is compared at the highest; those below are left out for good
//   at `last`                                ends
// With several brackets a trial is in one of them by chance: rungs of bracket s begin at the s-th.

#include <map>
#include <vector>

#include "launcher/tune/metric.hpp"
#include "launcher/tune/scheduler.hpp"

namespace sgd::tune {

struct AshaRules {
  Mode mode = Mode::kMin;
  std::int64_t first = 1;   ///< The first rung.
  std::int64_t last = 100;  ///< What a trial may have at most.
  std::int64_t factor = 4;
  int brackets = 1;  ///< At most as many as there are rungs.
  std::uint64_t seed = 0;
};

class AshaStopping : public Scheduler {
 public:
  explicit AshaStopping(const AshaRules& rules);

 private:
  struct Bracket {
    std::vector<std::int64_t> rungs;
    std::vector<std::vector<double>> scores;  ///< Of each rung, rising.
  };
  struct Runner {
    int bracket = 0;
    int reached = -1;  ///< The highest rung at which it was compared.
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

  [[nodiscard]] int drawn_bracket(TrialId trial) const;

  AshaRules rules_;
  std::vector<Bracket> brackets_;
  std::map<TrialId, Runner> runners_;
};

}  // namespace sgd::tune
