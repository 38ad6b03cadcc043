#include "launcher/tune/asha_promotion.hpp"

#include <algorithm>
#include <cmath>

#include "common/base/assert.hpp"
#include "launcher/tune/rungs.hpp"

namespace sgd::tune {

AshaPromotion::AshaPromotion(const AshaRules& rules)
    : rules_(rules), at_(rungs(rules.first, rules.last, rules.factor)) {
  if (at_.back() == rules.last) at_.pop_back();
  for (const std::int64_t at : at_) rungs_.push_back({at, TopPart(rules.factor), 0});
}

Decision AshaPromotion::about(TrialId trial, Action action, Reason reason) const {
  const Progress& place = progress_.at(trial);
  const Rung& rung = rungs_[static_cast<std::size_t>(place.rung)];
  return {.trial = trial,
          .action = action,
          .reason = reason,
          .iteration = rung.at,
          .value = place.value,
          .others = rung.trials.size()};
}

void AshaPromotion::added(TrialId trial, const Values&) {
  progress_[trial] = {};
}

Decision AshaPromotion::reported(const Report& report) {
  Decision decision{.trial = report.trial, .iteration = report.iteration};
  const auto decide = [&](Action action, Reason reason) {
    decision.action = action;
    decision.reason = reason;
    return decision;
  };
  if (report.iteration >= rules_.last) return decide(Action::kStop, Reason::kMaxEpochs);
  Progress& place = progress_.at(report.trial);
  const std::optional<int> index = rung_at(at_, report.iteration);
  if (!index || *index <= place.rung) return decide(Action::kContinue, Reason::kBetweenRungs);
  decision.iteration = rung(*index).at;
  if (std::isnan(report.value)) return decide(Action::kStop, Reason::kNotANumber);
  place = {*index, report.value};
  rung(*index).trials.insert(report.trial, score_of(rules_.mode, report.value));
  const auto next = chosen(false);
  if (!next || next->trial != report.trial) return about(report.trial, Action::kPause, Reason::kWaitsAtRung);
  resumed(report.trial);
  return about(report.trial, Action::kContinue, Reason::kPromoted);
}

std::optional<Decision> AshaPromotion::chosen(bool) const {
  for (auto one = rungs_.rbegin(); one != rungs_.rend(); ++one)
    if (const auto best = one->trials.best_in_part()) return about(*best, Action::kResume, Reason::kPromoted);
  if (more_may_come() || running() > 0) return std::nullopt;
  for (auto one = rungs_.rbegin(); one != rungs_.rend() && one->went_on == 0; ++one)
    if (const auto best = one->trials.best_waiting()) return about(*best, Action::kResume, Reason::kPromoted);
  return std::nullopt;
}

void AshaPromotion::resumed(TrialId trial) {
  Rung& from = rung(progress_.at(trial).rung);
  SGD_ASSERT(from.trials.waits(trial));
  from.trials.take(trial);
  ++from.went_on;
}

void AshaPromotion::ended(TrialId trial, Outcome) {
  const auto place = progress_.find(trial);
  if (place->second.rung >= 0) rung(place->second.rung).trials.take(trial);
  progress_.erase(place);
}

Decisions AshaPromotion::settled() {
  if (more_may_come() || running() > 0 || paused() == 0 || chosen(false)) return {};
  Decisions stops;
  for (const auto& [trial, member] : members())
    if (member.phase == Phase::kPaused) stops.push_back(about(trial, Action::kStop, Reason::kNotPromoted));
  return stops;
}

nlohmann::json AshaPromotion::own_state() const {
  nlohmann::json at_rungs = nlohmann::json::array();
  for (const Rung& one : rungs_) at_rungs.push_back({one.went_on, one.trials.state()});
  nlohmann::json places = nlohmann::json::array();
  for (const auto& [trial, place] : progress_) places.push_back({trial, place.rung, place.value});
  return {{"rungs", std::move(at_rungs)}, {"places", std::move(places)}};
}

bool AshaPromotion::restore(const nlohmann::json& state) {
  const nlohmann::json& at_rungs = state.at("rungs");
  if (at_rungs.size() != rungs_.size()) return false;
  for (std::size_t i = 0; i < rungs_.size(); ++i) {
    rungs_[i].went_on = at_rungs.at(i).at(0).get<std::int64_t>();
    if (!rungs_[i].trials.restore(at_rungs.at(i).at(1))) return false;
  }
  for (const nlohmann::json& one : state.at("places")) {
    const Progress place{one.at(1).get<int>(), one.at(2).get<double>()};
    if (place.rung < -1 || place.rung >= static_cast<int>(rungs_.size())) return false;
    progress_[one.at(0).get<TrialId>()] = place;
  }
  if (progress_.size() != members().size()) return false;
  return std::all_of(members().begin(), members().end(), [&](const auto& one) {
    const auto place = progress_.find(one.first);
    if (place == progress_.end()) return false;
    return one.second.phase == Phase::kRunning ||
           (place->second.rung >= 0 && rung(place->second.rung).trials.waits(one.first));
  });
}

}  // namespace sgd::tune
