#include "launcher/tune/hyperband.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/base/assert.hpp"

namespace sgd::tune {

Hyperband::Hyperband(const HyperbandRules& rules) : rules_(rules) {
  SGD_ASSERT(rules.last >= 1 && rules.factor >= 2);
  for (std::int64_t rest = rules.last / rules.factor; rest >= 1; rest /= rules.factor) ++s_max_;
}

std::int64_t Hyperband::capacity(int s) const {
  std::int64_t power = 1;
  for (int i = 0; i < s; ++i) power *= rules_.factor;
  return ((s_max_ + 1) * power + s) / (s + 1);
}

std::vector<std::int64_t> Hyperband::rungs_of(int s) const {
  std::vector<std::int64_t> out{rules_.last};
  for (int i = 0; i < s; ++i) out.push_back(out.back() / rules_.factor);
  std::reverse(out.begin(), out.end());
  return out;
}

void Hyperband::added(TrialId trial, const Values&) {
  const auto newest = brackets_.find(made_ - 1);
  const bool is_open =
      newest != brackets_.end() && newest->second.round == 0 && newest->second.taken < capacity(newest->second.s);
  if (!is_open) {
    if (newest != brackets_.end() && newest->second.going.empty() && newest->second.waiting.empty())
      brackets_.erase(newest);
    brackets_[made_].s = s_max_ - made_ % (s_max_ + 1);
    ++made_;
  }
  Bracket& bracket = brackets_[made_ - 1];
  ++bracket.taken;
  bracket.going.insert(trial);
  bracket_of_[trial] = made_ - 1;
}

bool Hyperband::is_complete(const Bracket& bracket) const {
  const bool is_closed = bracket.round > 0 || !more_may_come() || bracket.taken >= capacity(bracket.s);
  return is_closed && bracket.going.empty() && !bracket.waiting.empty();
}

void Hyperband::halve(int number) {
  Bracket& bracket = brackets_.at(number);
  const std::int64_t rung = rungs_of(bracket.s)[static_cast<std::size_t>(bracket.round)];
  std::vector<std::pair<double, TrialId>> order;  // The best first; of equals the one that was made first.
  for (const auto& [trial, value] : bracket.waiting) order.emplace_back(-score_of(rules_.mode, value), trial);
  std::sort(order.begin(), order.end());
  const auto count = static_cast<std::int64_t>(order.size());
  const auto kept = static_cast<std::size_t>(std::max<std::int64_t>(1, count / rules_.factor));
  for (std::size_t i = 0; i < order.size(); ++i) {
    const TrialId trial = order[i].second;
    const double value = bracket.waiting.at(trial);
    if (i < kept) {
      bracket.going.insert(trial);
      ready_[{number, trial}] = {rung, value, count};
    } else {
      losers_.push_back({.trial = trial,
                         .action = Action::kStop,
                         .reason = Reason::kHalved,
                         .iteration = rung,
                         .value = value,
                         .others = count});
    }
  }
  bracket.waiting.clear();
  ++bracket.round;
}

Decision Hyperband::reported(const Report& report) {
  Decision decision{.trial = report.trial, .iteration = report.iteration};
  const auto decide = [&](Action action, Reason reason) {
    decision.action = action;
    decision.reason = reason;
    return decision;
  };
  if (report.iteration >= rules_.last) return decide(Action::kStop, Reason::kMaxEpochs);
  const int number = bracket_of_.at(report.trial);
  Bracket& bracket = brackets_.at(number);
  const std::int64_t rung = rungs_of(bracket.s)[static_cast<std::size_t>(bracket.round)];
  if (report.iteration < rung) return decide(Action::kContinue, Reason::kBetweenRungs);
  decision.iteration = rung;
  if (std::isnan(report.value)) return decide(Action::kStop, Reason::kNotANumber);
  decision.value = report.value;
  bracket.going.erase(report.trial);
  bracket.waiting[report.trial] = report.value;
  decision.others = static_cast<std::int64_t>(bracket.waiting.size());
  if (!is_complete(bracket)) return decide(Action::kPause, Reason::kWaitsAtRung);
  halve(number);
  if (ready_.erase({number, report.trial}) > 0) return decide(Action::kContinue, Reason::kPromoted);
  const auto own =
      std::find_if(losers_.begin(), losers_.end(), [&](const Decision& loser) { return loser.trial == report.trial; });
  SGD_ASSERT(own != losers_.end());
  decision = *own;
  losers_.erase(own);
  return decision;
}

void Hyperband::ended(TrialId trial, Outcome) {
  const auto found = bracket_of_.find(trial);
  const int number = found->second;
  bracket_of_.erase(found);
  ready_.erase({number, trial});
  const auto place = brackets_.find(number);
  if (place == brackets_.end()) return;
  place->second.going.erase(trial);
  place->second.waiting.erase(trial);
  if (number != made_ - 1 && place->second.going.empty() && place->second.waiting.empty()) brackets_.erase(place);
}

Decisions Hyperband::settled() {
  for (const auto& [number, bracket] : brackets_)
    if (is_complete(bracket)) halve(number);
  return std::exchange(losers_, {});
}

std::optional<Decision> Hyperband::chosen(bool) const {
  if (ready_.empty()) return std::nullopt;
  const auto& [place, ready] = *ready_.begin();
  return Decision{.trial = place.second,
                  .action = Action::kResume,
                  .reason = Reason::kPromoted,
                  .iteration = ready.iteration,
                  .value = ready.value,
                  .others = ready.others};
}

void Hyperband::resumed(TrialId trial) {
  const auto erased = ready_.erase({bracket_of_.at(trial), trial});
  SGD_ASSERT(erased == 1);
}

nlohmann::json Hyperband::own_state() const {
  nlohmann::json brackets = nlohmann::json::array();
  for (const auto& [number, one] : brackets_) {
    nlohmann::json waiting = nlohmann::json::array();
    for (const auto& [trial, value] : one.waiting) waiting.push_back({trial, value});
    brackets.push_back({{"number", number},
                        {"s", one.s},
                        {"taken", one.taken},
                        {"round", one.round},
                        {"going", one.going},
                        {"waiting", std::move(waiting)}});
  }
  nlohmann::json ready = nlohmann::json::array();
  for (const auto& [place, one] : ready_)
    ready.push_back({place.first, place.second, one.iteration, one.value, one.others});
  return {{"made", made_}, {"brackets", std::move(brackets)}, {"ready", std::move(ready)}};
}

bool Hyperband::restore(const nlohmann::json& state) {
  made_ = state.at("made").get<int>();
  for (const nlohmann::json& one : state.at("brackets")) {
    const auto number = one.at("number").get<int>();
    Bracket bracket{one.at("s").get<int>(),
                    one.at("taken").get<std::int64_t>(),
                    one.at("round").get<int>(),
                    one.at("going").get<std::set<TrialId>>(),
                    {}};
    if (number >= made_ || bracket.s < 0 || bracket.s > s_max_ || bracket.round < 0 || bracket.round > bracket.s)
      return false;
    for (const nlohmann::json& trial : one.at("waiting"))
      bracket.waiting[trial.at(0).get<TrialId>()] = trial.at(1).get<double>();
    for (const TrialId trial : bracket.going) bracket_of_[trial] = number;
    for (const auto& [trial, value] : bracket.waiting) bracket_of_[trial] = number;
    brackets_[number] = std::move(bracket);
  }
  for (const nlohmann::json& one : state.at("ready")) {
    const std::pair place(one.at(0).get<int>(), one.at(1).get<TrialId>());
    ready_[place] = {one.at(2).get<std::int64_t>(), one.at(3).get<double>(), one.at(4).get<std::int64_t>()};
  }
  return bracket_of_.size() == members().size() &&
         std::all_of(members().begin(), members().end(),
                     [&](const auto& one) { return bracket_of_.contains(one.first); });
}

}  // namespace sgd::tune
