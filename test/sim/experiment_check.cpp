#include "test/sim/experiment_check.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "common/job/load.hpp"
#include "launcher/tune/make_scheduler.hpp"
#include "test/sim/experiment_plan.hpp"

namespace sgd::sim {
namespace {

tune::ExperimentSpec spec_of(const ExperimentPlan& plan) {
  job::LoadResult loaded = job::load_given(plan.definition.base->given, "/", {});
  return tune::parse_experiment(loaded, loaded.diagnostics).value();
}

double number_of(const nlohmann::ordered_json& value) {
  return value.is_number() ? value.get<double>() : std::nan("");
}

bool same(double left, double right) {
  return left == right || (std::isnan(left) && std::isnan(right));
}

tune::Outcome outcome_of(const std::string& word) {
  for (const auto outcome :
       {tune::Outcome::kCompleted, tune::Outcome::kStopped, tune::Outcome::kFailed, tune::Outcome::kCancelled})
    if (word == tune::word_of(outcome)) return outcome;
  violated("a trial has ended as {}", word);
}

}  // namespace

ExperimentCheck::ExperimentCheck(World& world, const ExperimentPlan& plan)
    : world_(world), plan_(plan), spec_(spec_of(plan)), rule_(tune::make_scheduler(spec_)) {}

RunId ExperimentCheck::run_of(tune::TrialId trial) const {
  return fmt::format("{}.{:04}", id(), trial);
}

ExperimentCheck::Trial& ExperimentCheck::at(const RunId& run) {
  for (auto& [trial, its] : trials_)
    if (run_of(trial) == run) return its;
  violated("{}: {} is none of its trials", id(), run);
}

ExperimentCheck::Phase ExperimentCheck::phase_of(const RunId& run) const {
  for (const auto& [trial, its] : trials_)
    if (run_of(trial) == run) return its.phase;
  return Phase::kNone;
}

bool ExperimentCheck::may_go_on(const RunId& run) const {
  for (const auto& [trial, its] : trials_)
    if (run_of(trial) == run) return its.phase != Phase::kEnded || its.interrupted.has_value();
  return false;
}

bool ExperimentCheck::more_may_come() const {
  return trials_.size() < spec_.trials();
}

// ---- its runs ----

void ExperimentCheck::on_begin(const core::RunDefinition& run) {
  Trial& its = at(run.id);
  if (!its.is_over) violated("{} begins while it is at work", run.id);
  if (run.parent != id()) violated("{} begins, and is nobody's trial", run.id);
  // One that goes on may have said already what it is to pause for.
  if (its.phase != Phase::kRunning && its.phase != Phase::kPausing) violated("{} begins, and nobody wants it", run.id);
  if (finished_) violated("{} begins after the end", run.id);
  if (++its.lives > 1 && !run.past) violated("{} begins again, and knows nothing of its past", run.id);
  its.is_over = its.is_done = false;
}

void ExperimentCheck::on_trial_metrics(const RunId& run, const Json& line) {
  if (line.at("phase") != "validate") return;
  const int epoch = line.at("epoch");
  const double value = number_of(line.at("score"));
  if (!same(value, score_of(run, epoch, line.at("generation"))))
    violated("{}: epoch {} has the score {}", run, epoch, value);
  if (Trial& its = at(run); !is_unheard(its)) its.said.push_back({epoch, value});
}

/// Its end was decided, or that it goes on as another one.
bool ExperimentCheck::is_unheard(const Trial& its) {
  return its.is_taking || (its.phase == Phase::kStopping && !its.interrupted);
}

void ExperimentCheck::on_trial_paused(const RunId& run) {
  note_pause(at(run));
}

/// It has no rank: what it was to take it has.
void ExperimentCheck::note_pause(Trial& its) {
  its.is_taking = false;
  if (its.phase == Phase::kPausing && std::exchange(its.goes_on, false)) its.phase = Phase::kRunning;
}

void ExperimentCheck::on_trial_finished(const RunId& run, bool is_done) {
  Trial& its = at(run);
  its.is_over = true;
  its.is_done = is_done;
  if (is_done && its.is_taking) note_pause(its);  // It has a state to go on from, though it was at its own end.
}

void ExperimentCheck::on_process_start(const RunId& run) const {
  if (phase_of(run) == Phase::kPaused) violated("{} is paused, and a rank of it starts", run);
}

// ---- its events ----

void ExperimentCheck::on_event(const Json& event) {
  const std::string& what = event.at("event").get_ref<const std::string&>();
  world_.say("{}: {}", id(), world_.verbose ? event.dump() : "");
  if (what == "experiment_resumed") return on_resumed();
  if (finished_) violated("{}: {} after the end", id(), what);
  take(event, what);
  check_room();
}

void ExperimentCheck::take(const Json& event, const std::string& what) {
  const bool goes_with_a_decision = what == "best_changed" || what == "trial_stopping" || what == "trial_cloned";
  if (what != "trial_decided" && what != "trial_resumed" && !goes_with_a_decision) {
    check_all_decided();
    if (std::exchange(asks_for_the_last_, false) && !more_may_come()) expect(rule_->on_no_more_trials());
  }
  if (!event.contains("trial")) return;
  const tune::TrialId trial = event.at("trial");
  if (what == "trial_started") return on_started(trial, event);
  const auto known = trials_.find(trial);
  if (known == trials_.end()) violated("{}: {} of trial {}, which has not begun", id(), what, trial);
  Trial& its = known->second;
  if (what == "trial_report") {
    on_report(trial, its, event);
  } else if (what == "trial_decided") {
    on_decided(trial, its, event);
  } else if (what == "trial_stopping") {
    // Who is asked to end with its experiment may go on with it.
    if (is_stopped_ && event.at("as") == "cancelled") its.interrupted = its.phase;
    its.phase = Phase::kStopping;
    if (!its.interrupted) its.said.clear();
  } else if (what == "trial_paused") {
    if (its.phase != Phase::kPausing) violated("{}: trial {} pauses unasked", id(), trial);
    its.phase = Phase::kPaused;
    its.has_place = false;
  } else if (what == "trial_cloned") {
    on_cloned(trial, its, event);
  } else if (what == "trial_resumed") {
    if (its.is_held != (event.at("state") == "pausing"))
      violated("{}: trial {} goes on as {}", id(), trial, event.at("state").dump());
    its.phase = its.is_held ? Phase::kPausing : event.at("state") == "paused" ? Phase::kPaused : Phase::kRunning;
    its.has_place = its.phase != Phase::kPaused;
    its.is_taking = false;
    its.goes_on = its.goes_on && its.is_held;
    its.interrupted.reset();
  } else if (what == "trial_restarted") {
    if (!its.is_over) violated("{}: trial {} starts again, and has not ended", id(), trial);
    if (event.at("failures") > spec_.max_failures)
      violated("{}: trial {} has failed {} times", id(), trial, event.at("failures").dump());
    if (!its.is_held) note_pause(its);  // Its run has ended before it could say that it pauses.
  } else if (what == "trial_ended") {
    on_ended(trial, its, event);
  }
}

/// It has got another one's state, which is as far as is said, or goes on as it is.
void ExperimentCheck::on_cloned(tune::TrialId trial, Trial& its, const Json& event) {
  if (!std::exchange(its.is_held, false)) violated("{}: trial {} copies unasked", id(), trial);
  its.is_taking = !event.at("checkpoint").is_null();
  rule_->on_copied(trial, event.at("iteration"), 0);
  if (its.is_taking) {
    its.values = its.next;
    its.said.clear();
  } else {
    rule_->on_values(trial, its.values);
  }
  if (its.is_over && !its.is_done) note_pause(its);  // Its run has ended before, and it goes on as it is.
}

void ExperimentCheck::on_started(tune::TrialId trial, const Json& event) {
  if (trial != static_cast<tune::TrialId>(trials_.size()))
    violated("{}: trial {} begins after {} others", id(), trial, trials_.size());
  Trial& its = trials_[trial];
  its.values = event.at("parameters");
  rule_->add_trial(trial, its.values);
  if (!more_may_come()) expect(rule_->on_no_more_trials());
}

void ExperimentCheck::on_report(tune::TrialId trial, Trial& its, const Json& event) {
  const double value = number_of(event.at("value"));
  if (its.said.empty() || its.said.front().epoch != event.at("iteration") || !same(its.said.front().value, value))
    violated("{}: trial {} has not said this: {}", id(), trial, event.dump());
  const int epoch = its.said.front().epoch;
  its.said.pop_front();
  const bool is_max = spec_.mode == tune::Mode::kMax;
  if (std::isfinite(value) && (!its.best || (is_max ? value > *its.best : value < *its.best))) its.best = value;
  if (its.phase != Phase::kRunning || is_stopped_) return;
  expect(rule_->on_report({trial, epoch, value, more_may_come()}));
}

void ExperimentCheck::on_decided(tune::TrialId trial, Trial& its, const Json& event) {
  drop_silent();
  const std::string action = event.at("action");
  if (expected_.empty() && action == "resume") {
    const auto chosen = rule_->next_paused(more_may_come());
    if (!chosen || chosen->trial != trial) violated("{}: trial {} goes on, and it is not its turn", id(), trial);
    rule_->on_resumed(trial);
    if (its.phase != Phase::kPaused) violated("{}: trial {} goes on before it has paused", id(), trial);
    its.phase = Phase::kRunning;
    its.has_place = true;
    return;
  }
  if (expected_.empty()) violated("{}: a decision that nothing led to: {}", id(), event.dump());
  const tune::Decision decision = std::move(expected_.front());
  expected_.pop_front();
  if (decision.trial != trial || action != tune::word_of(decision.action) ||
      event.at("iteration") != decision.iteration || event.at("reason") != tune::word_of(decision.reason))
    violated("{}: {} is decided, {} of trial {} was to be", id(), event.dump(), tune::word_of(decision.action),
             decision.trial);
  if (decision.action == tune::Action::kPause || decision.action == tune::Action::kExploit) its.phase = Phase::kPausing;
  its.is_held = decision.action == tune::Action::kExploit;
  its.goes_on = its.is_held && !decision.waits;
  its.next = decision.values;
}

void ExperimentCheck::on_ended(tune::TrialId trial, Trial& its, const Json& event) {
  if (!its.is_over) violated("{}: trial {} has ended, and its run is at work", id(), trial);
  if (its.phase == Phase::kEnded) violated("{}: trial {} ends twice", id(), trial);
  // Of one that may go on, what it said when it was to pause is told then.
  if (!its.said.empty() && !its.interrupted)
    violated("{}: trial {} has ended, and not all that it said was told", id(), trial);
  its.phase = Phase::kEnded;
  its.has_place = false;
  const tune::Outcome outcome = outcome_of(event.at("state"));
  if (outcome != tune::Outcome::kCancelled) its.interrupted.reset();
  if (!its.interrupted) expect(rule_->on_end(trial, outcome));
}

void ExperimentCheck::on_resumed() {
  drop_silent();
  finished_ = is_stopped_ = false;
  asks_for_the_last_ = true;
}

// ---- its decisions ----

void ExperimentCheck::expect(tune::Decisions decisions) {
  for (tune::Decision& decision : decisions) expected_.push_back(std::move(decision));
}

/// Nothing is said of what changes nothing, and nothing happens to who ends already.
void ExperimentCheck::drop_silent() {
  using tune::Reason;
  static constexpr Reason kSilent[] = {Reason::kNoRule, Reason::kBetweenRungs, Reason::kBetweenIntervals,
                                       Reason::kWarmUp, Reason::kRepeated};
  std::erase_if(expected_, [this](const tune::Decision& decision) {
    const Phase phase = trials_.at(decision.trial).phase;
    const bool is_late = phase == Phase::kStopping || phase == Phase::kEnded;
    if (is_late && decision.action == tune::Action::kStop) {
      trials_.at(decision.trial).interrupted.reset();
      trials_.at(decision.trial).said.clear();
    }
    return is_late || (decision.action == tune::Action::kContinue &&
                       std::find(std::begin(kSilent), std::end(kSilent), decision.reason) != std::end(kSilent));
  });
}

void ExperimentCheck::check_all_decided() {
  drop_silent();
  if (expected_.empty()) return;
  violated("{}: {} of trial {} was to be decided ({})", id(), tune::word_of(expected_.front().action),
           expected_.front().trial, tune::in_words(expected_.front()));
}

void ExperimentCheck::check_room() const {
  const auto has_place = [](const auto& trial) { return trial.second.has_place; };
  const auto at_work = std::count_if(trials_.begin(), trials_.end(), has_place);
  if (spec_.concurrent > 0 && at_work > spec_.concurrent)
    violated("{}: {} trials at work, {} may be", id(), at_work, spec_.concurrent);
}

// ---- the end ----

void ExperimentCheck::on_finish(const core::RunOutcome& outcome) {
  check_all_decided();
  if (std::exchange(finished_, true)) violated("{}: finished twice", id());
  std::optional<tune::TrialId> best;
  const auto is_better = [&](double left, double right) {
    return spec_.mode == tune::Mode::kMax ? left > right : left < right;
  };
  for (const auto& [trial, its] : trials_) {
    if (its.phase != Phase::kEnded || !its.is_over) violated("{}: finished, and trial {} has not", id(), trial);
    if (its.best && (!best || is_better(*its.best, *trials_.at(*best).best))) best = trial;
  }
  if (!is_stopped_ && more_may_come()) violated("{}: finished after {} trials", id(), trials_.size());
  const Json& said = outcome.tune.at("best");
  if (said.is_null() != !best) violated("{}: its best trial is {}", id(), said.dump());
  if (best && (said.at("trial") != *best || said.at("value") != *trials_.at(*best).best))
    violated("{}: its best trial is {}, not {}", id(), *best, said.dump());
  const bool is_stop = outcome.state == "cancelled" || outcome.state == "interrupted";
  if (is_stop != is_stopped_ || (best && !is_stop && outcome.state != "succeeded"))
    violated("{}: it has ended as {}", id(), outcome.state);
  world_.say("{}: {}: {}", id(), outcome.state, outcome.error);
}

}  // namespace sgd::sim
