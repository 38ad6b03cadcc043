// Experiment: what its trials report, and when it counts.

#include <cmath>
#include <set>
#include <utility>

#include "common/json/lenient.hpp"
#include "launcher/core/experiment.hpp"

namespace sgd::core {

using Line = nlohmann::ordered_json;

namespace {

constexpr std::size_t kNamesShown = 16;

void add_numbers(const Line& values, const std::string& front, std::set<std::string>& names) {
  for (const auto& [key, value] : values.items()) {
    if (key.starts_with('_') || names.size() >= kNamesShown) continue;
    if (value.is_object()) add_numbers(value, front + key + "/", names);
    if (value.is_number()) names.insert(front + key);
  }
}

/// Names that people may have meant, of lines without the metric, by phase.
std::set<std::string> numbers_in(const Line& lines) {
  std::set<std::string> names;
  for (const Line& line : lines) add_numbers(line, "", names);
  return names;
}

}  // namespace

void Experiment::on_line(const coordinator_command::RecordMetrics& told, CoordinatorCommands& out,
                         TrialOrders& orders) {
  const auto trial = trial_of(told.run);
  if (!trial || is_over_ || !is_readable()) return;
  if (definition_.job.training && told.key.batch != 0) return;  // Within an epoch; its end counts.
  deliver(*trial, told.metrics, out, orders);
}

void Experiment::on_line_refused(const RunId& run, const std::string& why, CoordinatorCommands& out) const {
  if (const auto trial = trial_of(run); trial && !is_over_)
    record({{"event", "last_line_refused"}, {"trial", *trial}, {"why", why}}, out);
}

void Experiment::deliver(tune::TrialId trial, const Line& line, CoordinatorCommands& out, TrialOrders& orders) {
  TrialRecord& its = trials_.at(trial);
  switch (delivery_of(its)) {
    case Delivery::kNow:
      return take_line(trial, line, out, orders);
    case Delivery::kLater:
      if (its.held.size() < kHeldMax) its.held.push_back(line);
      return;
    case Delivery::kNever:
      return;
  }
}

/// A report may cross the order to stop or to pause on its way. Whether one does is chance, and chance must not change
/// what is decided, or one seed would not give the same experiment twice.
Experiment::Delivery Experiment::delivery_of(const TrialRecord& its) {
  if (!its.taken.empty()) return Delivery::kNever;  // It goes on with another one's state.
  switch (its.interrupted.value_or(its.phase)) {
    case TrialPhase::kRunning:
      return Delivery::kNow;
    case TrialPhase::kPausing:
    case TrialPhase::kPaused:
      return Delivery::kLater;
    case TrialPhase::kStopping:
    case TrialPhase::kEnded:
      return Delivery::kNever;
  }
  return Delivery::kNever;
}

/// It goes on, as if it said them now: after one of them it may have to pause again, or to end.
void Experiment::deliver_held(tune::TrialId trial, CoordinatorCommands& out, TrialOrders& orders) {
  for (const Line& line : std::exchange(trials_.at(trial).held, {})) deliver(trial, line, out, orders);
}

/// It has ended without another word about it.
void Experiment::take_held(tune::TrialId trial, CoordinatorCommands& out, TrialOrders& orders) {
  for (const Line& line : std::exchange(trials_.at(trial).held, {})) take_line(trial, line, out, orders);
}

void Experiment::take_line(tune::TrialId trial, const Line& line, CoordinatorCommands& out, TrialOrders& orders) {
  TrialRecord& its = trials_.at(trial);
  const bool is_training = definition_.job.training.has_value();
  const Line* found = tune::find_value(line, spec_.metric);
  const bool has_metric = found != nullptr && (found->is_number() || found->is_null());
  if (!has_metric) {
    const bool is_round = read_or(line, "phase", "") == "validate" || (!is_training && ++its.silent_lines > 1);
    return is_round ? note_missing(trial, Line{{"line", line}}, out) : void();
  }
  is_metric_known_ = true;
  ++its.reports;
  its.iteration = is_training ? read_or(line, "epoch", its.reports) : its.reports;
  const double value = found->is_number() ? found->get<double>() : std::nan("");
  if (std::isfinite(value)) {
    its.value = value;
    if (!its.best || is_better(value, *its.best)) {
      its.best = value;
      its.best_iteration = its.iteration;
      its.best_state.reset();
    }
  }
  record({{"event", "trial_report"},
          {"trial", trial},
          {"iteration", its.iteration},
          {"value", std::isfinite(value) ? Line(value) : Line(nullptr)}},
         out);
  const auto step = read_or(line, "step", std::int64_t{0});
  note_step(its, step);
  if (its.phase != TrialPhase::kRunning || stop_) return;
  const bool others_wait = more_may_come();
  const tune::Decisions decisions = rule_->on_report({trial, its.iteration, value, others_wait, step});
  if (decisions.front().may_be_copied && decisions.front().action != tune::Action::kExploit)
    orders.emplace_back(trial_order::Compared{run_of(trial), step});
  const std::string reached = tune::bound_reached(spec_, its.iteration, nlohmann::json(line));
  if (!reached.empty()) stop(trial, tune::Outcome::kCompleted, reached, {}, out, orders);
  obey(decisions, out, orders);
}

/// Told once: who misspelt it would find nothing at the end of the last trial. A line of training may come first, and
/// that of validation then.
void Experiment::note_missing(tune::TrialId trial, const Line& lines, CoordinatorCommands& out) {
  if (is_metric_known_ || std::exchange(is_metric_missed_, true)) return;
  record({{"event", "metric_missing"}, {"trial", trial}, {"metric", spec_.metric}, {"reported", numbers_in(lines)}},
         out);
}

}  // namespace sgd::core
