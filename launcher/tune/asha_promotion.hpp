#pragma once
// Asynchronous successive halving by promotion (Li et al. 2018, algorithm 2). A trial that comes to a rung waits there;
// one that is among the best part of all that ever came there, 1/factor, goes on from its checkpoint as soon as there
// is room, the highest rung first. So no trial is given up for being compared too early.
//   the one that would go on next anyway     goes on at once, without a pause
//   no number at a rung                      ends, and does not count
//   a report that passes several rungs       waits at the highest
//   a waiting trial that ends                stays in the comparisons
//   at `last`                                ends
// When no trials are to come and none runs, the best at the highest rung goes on where nobody has gone on from there,
// so that one trial gets to `last`; then the others end.

#include <map>
#include <vector>

#include "launcher/tune/asha_stopping.hpp"
#include "launcher/tune/top_part.hpp"

namespace sgd::tune {

class AshaPromotion : public Scheduler {
 public:
  /// One bracket.
  explicit AshaPromotion(const AshaRules& rules);

 private:
  struct Rung {
    std::int64_t at = 0;
    TopPart trials;
    std::int64_t went_on = 0;  ///< Trials that were promoted from here.
  };
  struct Progress {
    int rung = -1;     ///< The highest that it has come to; -1: none.
    double value = 0;  ///< What it reported there.
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

  [[nodiscard]] Rung& rung(int index) { return rungs_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] Decision about(TrialId trial, Action action, Reason reason) const;

  AshaRules rules_;
  std::vector<Rung> rungs_;  ///< Below `last`, rising.
  std::vector<std::int64_t> at_;
  std::map<TrialId, Progress> progress_;  ///< Of trials that have not ended.
};

}  // namespace sgd::tune
