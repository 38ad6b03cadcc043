#include "launcher/tune/pbt.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "launcher/tune/keyed_random.hpp"

namespace sgd::tune {

void Pbt::added(TrialId trial, const Values& values) {
  population_[trial].values = values;
}

void Pbt::copy(Decision& decision, const std::vector<TrialId>& donors) {
  One& own = population_.at(decision.trial);
  const auto number = static_cast<std::uint64_t>(decision.trial);
  const TrialId donor = donors[KeyedRandom(rules_.seed, "pbt donor", number, own.copies).below(donors.size())];
  const One& from = population_.at(donor);
  Explored explored = explore(from.values, rules_.parameters, rules_.explore, rules_.seed, decision.trial, own.copies);
  decision.action = Action::kExploit;
  decision.reason = Reason::kAmongBottom;
  decision.donor = donor;
  decision.donor_iteration = from.ranked_at;
  decision.donor_step = from.step;
  decision.values = explored.values;
  decision.changes = std::move(explored.changes);
  own.values = std::move(explored.values);
  own.ranked_at = from.ranked_at;
  own.step = from.step;
  ++own.copies;
}

Decision Pbt::reported(const Report& report) {
  Decision decision{.trial = report.trial, .iteration = report.iteration};
  One& own = population_.at(report.trial);
  if (report.iteration < rules_.burn_in || report.iteration - own.ranked_at < rules_.interval) {
    decision.reason = report.iteration < rules_.burn_in ? Reason::kWarmUp : Reason::kBetweenIntervals;
    return decision;
  }
  const bool is_number = !std::isnan(report.value);
  own.ranked_at = report.iteration;
  own.step = report.step;
  own.turn = ++turns_;
  own.score = is_number ? std::optional(score_of(rules_.mode, report.value)) : std::nullopt;
  own.value = is_number ? report.value : 0;
  std::vector<TrialId> ranked;  // The worst first.
  for (const auto& [trial, one] : population_)
    if (one.score) ranked.push_back(trial);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](TrialId a, TrialId b) { return *population_.at(a).score < *population_.at(b).score; });
  const std::size_t count = ranked.size();
  const auto wanted = static_cast<std::size_t>(std::ceil(static_cast<double>(count) * rules_.quantile));
  const std::size_t part =
      std::min(wanted, std::max<std::size_t>(count / 2, is_number ? 0 : std::min<std::size_t>(count, 1)));
  const std::vector<TrialId> top(ranked.end() - static_cast<std::ptrdiff_t>(part), ranked.end());
  const auto lower_end = ranked.begin() + static_cast<std::ptrdiff_t>(part);
  if (is_number) decision.value = report.value;
  decision.others = static_cast<std::int64_t>(count);
  decision.waits = report.others_wait || paused() > 0;
  decision.action = decision.waits ? Action::kPause : Action::kContinue;
  decision.may_be_copied = true;
  if (std::find(top.begin(), top.end(), report.trial) != top.end()) {
    decision.reason = Reason::kAmongTop;
  } else if (part > 0 && (!is_number || std::find(ranked.begin(), lower_end, report.trial) != lower_end)) {
    copy(decision, top);
  } else {
    decision.reason = count < 2 ? Reason::kTooFewTrials : Reason::kInTheMiddle;
  }
  return decision;
}

std::optional<Decision> Pbt::chosen(bool others_wait) const {
  if (others_wait) return std::nullopt;  // They are furthest behind.
  std::optional<Decision> next;
  std::pair<std::int64_t, std::uint64_t> first;
  for (const auto& [trial, one] : population_) {  // Of many trials few have not ended.
    if (members().at(trial).phase != Phase::kPaused) continue;
    const std::pair place(one.ranked_at, one.turn);
    if (next && first <= place) continue;
    first = place;
    next = {.trial = trial, .action = Action::kResume, .reason = Reason::kTurn, .iteration = one.ranked_at};
    if (one.score) next->value = one.value;
  }
  return next;
}

void Pbt::ended(TrialId trial, Outcome) {
  population_.erase(trial);
}

void Pbt::values_set(TrialId trial, const Values& values) {
  population_.at(trial).values = values;
}

void Pbt::copied(TrialId trial, std::int64_t iteration, std::int64_t step) {
  One& own = population_.at(trial);
  own.ranked_at = iteration;
  own.step = step;
}

nlohmann::json Pbt::own_state() const {
  nlohmann::json population = nlohmann::json::array();
  for (const auto& [trial, one] : population_)
    population.push_back({trial, one.values, one.score ? nlohmann::json(one.value) : nlohmann::json(), one.ranked_at,
                          one.copies, one.turn, one.step});
  return {{"population", std::move(population)}, {"turns", turns_}};
}

bool Pbt::restore(const nlohmann::json& state) {
  turns_ = state.at("turns").get<std::uint64_t>();
  for (const nlohmann::json& one : state.at("population")) {
    One& read = population_[one.at(0).get<TrialId>()];
    read.values = one.at(1);
    if (!rules_.parameters.misfit(read.values).empty()) return false;
    if (!one.at(2).is_null()) {
      read.value = one.at(2).get<double>();
      read.score = score_of(rules_.mode, read.value);
    }
    read.ranked_at = one.at(3).get<std::int64_t>();
    read.copies = one.at(4).get<std::uint64_t>();
    read.turn = one.at(5).get<std::uint64_t>();
    if (one.size() > 6) read.step = one.at(6).get<std::int64_t>();  // A state of before has none.
  }
  return population_.size() == members().size() &&
         std::all_of(members().begin(), members().end(),
                     [&](const auto& one) { return population_.contains(one.first); });
}

}  // namespace sgd::tune
