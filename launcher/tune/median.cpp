#include "launcher/tune/median.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sgd::tune {
namespace {

nlohmann::json number_or_null(double value) {
  return std::isnan(value) ? nlohmann::json() : nlohmann::json(value);
}

double number_or_nan(const nlohmann::json& value) {
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

}  // namespace

void MedianRule::added(TrialId trial, const Values&) {
  runners_[trial] = {};
}

void MedianRule::take(Runner& runner, std::int64_t iteration, double value) const {
  runner.reports.emplace_back(iteration, value);
  if (std::isnan(value)) return;
  if (!runner.has_best || score_of(rules_.mode, value) > score_of(rules_.mode, runner.best)) runner.best = value;
  runner.has_best = true;
}

Decision MedianRule::reported(const Report& report) {
  Decision decision{.trial = report.trial, .iteration = report.iteration};
  const auto decide = [&](Action action, Reason reason) {
    decision.action = action;
    decision.reason = reason;
    return decision;
  };
  Runner& runner = runners_.at(report.trial);
  const std::int64_t before = runner.reports.empty() ? -1 : runner.reports.back().first;
  take(runner, report.iteration, report.value);
  decision.others = complete_;
  if (complete_ == 0 || complete_ < rules_.startup_trials) return decide(Action::kContinue, Reason::kTooFewTrials);
  if (report.iteration < rules_.warmup) return decide(Action::kContinue, Reason::kWarmUp);
  // The last epoch for which there is a decision; a report before this one may have had it.
  const std::int64_t due = (report.iteration - rules_.warmup) / rules_.interval * rules_.interval + rules_.warmup;
  if (before >= due) return decide(Action::kContinue, Reason::kBetweenIntervals);
  if (!runner.has_best) return decide(Action::kStop, Reason::kNotANumber);
  decision.value = runner.best;
  const auto epoch = epochs_.find(report.iteration);
  const Epoch& others = epoch == epochs_.end() ? Epoch{} : epoch->second;
  decision.others = static_cast<std::int64_t>(others.values.size());
  if (others.values.empty() || decision.others + others.no_numbers < rules_.least_trials)
    return decide(Action::kContinue, Reason::kTooFewTrials);
  const double median = percentile(others.values, 50);
  decision.bound = median;
  const bool is_worse = rules_.mode == Mode::kMax ? runner.best < median : runner.best > median;
  return is_worse ? decide(Action::kStop, Reason::kBelowMedian) : decide(Action::kContinue, Reason::kAboveMedian);
}

void MedianRule::count(std::int64_t iteration, double value) {
  Epoch& epoch = epochs_[iteration];
  if (std::isnan(value))
    ++epoch.no_numbers;
  else
    insert_sorted(epoch.values, value);
}

void MedianRule::ended(TrialId trial, Outcome outcome) {
  const auto runner = runners_.find(trial);
  if (outcome == Outcome::kCompleted) {
    ++complete_;
    for (const auto& [iteration, value] : runner->second.reports) count(iteration, value);
  }
  runners_.erase(runner);
}

nlohmann::json MedianRule::own_state() const {
  nlohmann::json epochs = nlohmann::json::array();
  for (const auto& [iteration, epoch] : epochs_) epochs.push_back({iteration, epoch.no_numbers, epoch.values});
  nlohmann::json runners = nlohmann::json::array();
  for (const auto& [trial, runner] : runners_) {
    nlohmann::json reports = nlohmann::json::array();
    for (const auto& [iteration, value] : runner.reports) reports.push_back({iteration, number_or_null(value)});
    runners.push_back({trial, std::move(reports)});
  }
  return {{"complete", complete_}, {"epochs", std::move(epochs)}, {"runners", std::move(runners)}};
}

bool MedianRule::restore(const nlohmann::json& state) {
  complete_ = state.at("complete").get<std::int64_t>();
  for (const nlohmann::json& one : state.at("epochs")) {
    Epoch epoch{one.at(2).get<std::vector<double>>(), one.at(1).get<std::int64_t>()};
    if (!std::is_sorted(epoch.values.begin(), epoch.values.end())) return false;
    epochs_[one.at(0).get<std::int64_t>()] = std::move(epoch);
  }
  for (const nlohmann::json& one : state.at("runners")) {
    Runner& runner = runners_[one.at(0).get<TrialId>()];
    for (const nlohmann::json& report : one.at(1))
      take(runner, report.at(0).get<std::int64_t>(), number_or_nan(report.at(1)));
  }
  return runners_.size() == members().size() &&
         std::all_of(members().begin(), members().end(), [&](const auto& one) { return runners_.contains(one.first); });
}

}  // namespace sgd::tune
