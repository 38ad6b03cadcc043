#include "launcher/tune/asha_stopping.hpp"

#include <algorithm>
#include <cmath>

#include "common/base/assert.hpp"
#include "launcher/tune/keyed_random.hpp"
#include "launcher/tune/rungs.hpp"

namespace sgd::tune {

AshaStopping::AshaStopping(const AshaRules& rules) : rules_(rules) {
  const std::vector<std::int64_t> all = rungs(rules.first, rules.last, rules.factor);
  SGD_ASSERT(rules.brackets >= 1 && static_cast<std::size_t>(rules.brackets) <= all.size());
  for (int s = 0; s < rules.brackets; ++s) {
    const std::vector<std::int64_t> own(all.begin() + s, all.end());
    brackets_.push_back({own, std::vector<std::vector<double>>(own.size())});
  }
}

int AshaStopping::drawn_bracket(TrialId trial) const {
  // A bracket has a rung less than the one before it, and 1/e of its trials.
  double all = 0;
  for (int s = 0; s < rules_.brackets; ++s) all += std::exp(-s);
  double rest = KeyedRandom(rules_.seed, "asha bracket", static_cast<std::uint64_t>(trial)).unit() * all;
  for (int s = 0; s < rules_.brackets; ++s) {
    rest -= std::exp(-s);
    if (rest < 0) return s;
  }
  return 0;
}

void AshaStopping::added(TrialId trial, const Values&) {
  runners_[trial] = {drawn_bracket(trial), -1};
}

Decision AshaStopping::reported(const Report& report) {
  Decision decision{.trial = report.trial, .iteration = report.iteration};
  const auto decide = [&](Action action, Reason reason) {
    decision.action = action;
    decision.reason = reason;
    return decision;
  };
  const bool is_last = report.iteration >= rules_.last;
  Runner& runner = runners_.at(report.trial);
  Bracket& bracket = brackets_[static_cast<std::size_t>(runner.bracket)];
  const std::optional<int> rung = rung_at(bracket.rungs, report.iteration);
  if (!rung || *rung <= runner.reached)
    return is_last ? decide(Action::kStop, Reason::kMaxEpochs) : decide(Action::kContinue, Reason::kBetweenRungs);
  runner.reached = *rung;
  decision.iteration = is_last ? rules_.last : bracket.rungs[static_cast<std::size_t>(*rung)];
  if (std::isnan(report.value)) return decide(Action::kStop, is_last ? Reason::kMaxEpochs : Reason::kNotANumber);
  std::vector<double>& scores = bracket.scores[static_cast<std::size_t>(*rung)];
  const double score = score_of(rules_.mode, report.value);
  decision.value = report.value;
  decision.others = static_cast<std::int64_t>(scores.size());
  if (is_last || scores.empty()) {
    insert_sorted(scores, score);  // A rung that it has passed is one that it has come to.
    if (is_last) return decide(Action::kStop, Reason::kMaxEpochs);
    return decide(Action::kContinue, Reason::kFirstAtRung);
  }
  const double bound = percentile(scores, (1 - 1 / static_cast<double>(rules_.factor)) * 100);
  decision.bound = score_of(rules_.mode, bound);
  insert_sorted(scores, score);
  return score < bound ? decide(Action::kStop, Reason::kBelowBound) : decide(Action::kContinue, Reason::kAmongBest);
}

void AshaStopping::ended(TrialId trial, Outcome) {
  runners_.erase(trial);
}

nlohmann::json AshaStopping::own_state() const {
  nlohmann::json brackets = nlohmann::json::array();
  for (const Bracket& bracket : brackets_) brackets.push_back(bracket.scores);
  nlohmann::json runners = nlohmann::json::array();
  for (const auto& [trial, runner] : runners_) runners.push_back({trial, runner.bracket, runner.reached});
  return {{"scores", std::move(brackets)}, {"runners", std::move(runners)}};
}

bool AshaStopping::restore(const nlohmann::json& state) {
  const nlohmann::json& brackets = state.at("scores");
  if (brackets.size() != brackets_.size()) return false;
  for (std::size_t s = 0; s < brackets_.size(); ++s) {
    auto scores = brackets.at(s).get<std::vector<std::vector<double>>>();
    if (scores.size() != brackets_[s].rungs.size()) return false;
    for (const std::vector<double>& rung : scores)
      if (!std::is_sorted(rung.begin(), rung.end())) return false;
    brackets_[s].scores = std::move(scores);
  }
  for (const nlohmann::json& one : state.at("runners")) {
    const Runner runner{one.at(1).get<int>(), one.at(2).get<int>()};
    if (runner.bracket < 0 || runner.bracket >= rules_.brackets) return false;
    runners_[one.at(0).get<TrialId>()] = runner;
  }
  return runners_.size() == members().size() &&
         std::all_of(members().begin(), members().end(), [&](const auto& one) { return runners_.contains(one.first); });
}

}  // namespace sgd::tune
