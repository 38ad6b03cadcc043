#include "launcher/core/experiment.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "launcher/core/trial_job.hpp"
#include "launcher/tune/make_scheduler.hpp"

namespace sgd::core {

using Line = nlohmann::ordered_json;

const char* name(TrialPhase phase) {
  switch (phase) {
    case TrialPhase::kRunning:
      return "running";
    case TrialPhase::kStopping:
      return "stopping";
    case TrialPhase::kPausing:
      return "pausing";
    case TrialPhase::kPaused:
      return "paused";
    case TrialPhase::kEnded:
      return "ended";
  }
  return "";
}

bool is_experiment(const job::JobSpec& job) {
  return !job.tune.is_null();
}

// ---- made and kept ----

namespace {

/// Error: the first of what is wrong.
Result<tune::ExperimentSpec> parsed(const TrialBase& base) {
  job::LoadResult loaded = job::load_given(base.given, base.folder, {});
  if (loaded.job)
    if (auto spec = tune::parse_experiment(loaded, loaded.diagnostics)) return *std::move(spec);
  for (const Diagnostic& item : loaded.diagnostics.items)
    if (!item.warning) return Error{item.message};
  return Error{"it has no \"tune\""};
}

}  // namespace

Result<tune::ExperimentSpec> Experiment::spec_of(const RunDefinition& definition) {
  SGD_ASSERT(definition.base.has_value());  // Else its trials would have no job.
  auto spec = parsed(*definition.base);
  if (spec) return spec;
  return Error{"its job was submitted to another version of sgd-launch, and this one refuses it: " +
               spec.error().message};
}

std::string Experiment::misfit_of(std::int64_t samples) const {
  TrialBase base = *definition_.base;
  base.given["tune"]["samples"] = samples;
  const auto spec = parsed(base);
  return spec ? "" : spec.error().message;
}

void Experiment::read_spec() {
  auto spec = spec_of(definition_);
  if (spec)
    spec_ = std::move(spec).value();
  else
    unreadable_ = spec.error().message;
}

Experiment::Experiment(RunDefinition definition, TimePoint now) {
  definition_ = std::move(definition);
  submitted_at_ = now;
  read_spec();
  if (is_readable()) rule_ = tune::make_scheduler(spec_);
  make_list();
}

Experiment::Experiment(State state) : State(std::move(state)) {
  read_spec();
  if (is_readable()) {
    auto rule = tune::restore_scheduler(spec_, scheduler_);
    if (rule) {
      rule_ = std::move(rule).value();
      scheduler_ = nullptr;
    } else {
      unreadable_ = "its state was stored by another version of sgd-launch: " + rule.error().message;
    }
  }
  find_unmade();
  make_list();
}

/// A version that kept the records of all ended trials did not say which have never begun: those without one.
void Experiment::find_unmade() {
  const auto has_ended = [](const auto& trial) { return trial.second.phase == TrialPhase::kEnded; };
  if (std::count_if(trials_.begin(), trials_.end(), has_ended) != ended_) return;
  for (tune::TrialId trial = 0; trial < next_; ++trial)
    if (!trials_.contains(trial) && !owed_.contains(trial)) unmade_.insert(trial);
}

/// Of what is known of trials.
void Experiment::make_list() {
  if (!is_readable()) return;
  if (spec_.search.kind != tune::SearchSpec::Kind::kExec) {
    list_ = spec_.list();
    return;
  }
  protocol_.emplace(spec_.parameters, next_);
  protocol_->on_asked({owed_.begin(), owed_.end()});
  if (no_more_) protocol_->on_asked({unmade_.begin(), unmade_.end()});
  for (const auto& [trial, its] : trials_) {
    protocol_->on_given(trial);
    if (its.phase == TrialPhase::kEnded) protocol_->on_end(trial);
  }
  if (no_more_) (void)protocol_->take("{\"type\":\"no_more\"}");  // Ignoring: it is said once more, and not heard.
}

Experiment::State Experiment::state() const {
  State state = *this;
  if (rule_) state.scheduler_ = rule_->state();
  return state;
}

// ---- which trials ----

void Experiment::begin(CoordinatorCommands& out) {
  record({{"event", "run_started"}, {"run", definition_.id}, {"num_workers", definition_.job.num_workers}}, out);
  record({{"event", "experiment_started"},
          {"trials", planned()},
          {"metric", spec_.metric},
          {"mode", spec_.mode == tune::Mode::kMax ? "max" : "min"},
          {"scheduler", spec_.scheduler.type},
          {"concurrent", spec_.concurrent},
          {"seed", spec_.seed}},
         out);
}

tune::TrialId Experiment::planned() const {
  if (!is_readable()) return next_ - static_cast<tune::TrialId>(owed_.size() + unmade_.size());
  return list_ ? list_->size() : static_cast<tune::TrialId>(spec_.samples);
}

bool Experiment::more_may_come() const {
  if (!is_readable()) return false;
  if (list_) return next_ < list_->size();
  return search_error_.empty() && !no_more_ && (next_ < planned() || !owed_.empty());
}

bool Experiment::may_begin_many() const {
  if (is_over_ || stop_ || !list_ || !more_may_come()) return false;
  return spec_.concurrent == 0 || spec_.concurrent - at_work_ > kTrialsWaitingMax;
}

void Experiment::advance(TimePoint now, std::size_t waiting, std::int64_t room, CoordinatorCommands& out,
                         TrialOrders& orders) {
  if (is_over_) return;
  if (!is_readable()) return end_if_done(now, out);
  const auto at_work = [&] { return at_work_ + static_cast<std::int64_t>(owed_.size()); };
  const std::int64_t waiting_most = std::max<std::int64_t>(room, spec_.concurrent == 0 ? 1 : kTrialsWaitingMax);
  const auto most_more = [&] {
    const std::int64_t more = waiting_most - static_cast<std::int64_t>(waiting + owed_.size());
    return spec_.concurrent == 0 ? more : std::min(spec_.concurrent - at_work(), more);
  };
  const auto has_room = [&] { return most_more() > 0; };
  for (;; ++waiting) {
    // Whoever waits may be wanted because nobody else comes.
    if (!more_may_come() && !std::exchange(has_told_last_, true)) obey(rule_->on_no_more_trials(), out, orders);
    if (stop_ || !has_room()) break;
    if (const auto chosen = rule_->next_paused(more_may_come())) {
      // It has not given its place up yet, and goes on when it has.
      if (trials_.at(chosen->trial).phase == TrialPhase::kPausing) break;
      rule_->on_resumed(chosen->trial);
      obey(tune::Decisions{*chosen}, out, orders);
      deliver_held(chosen->trial, out, orders);
    } else if (list_ && more_may_come()) {
      const tune::Trial trial = list_->at(next_++);
      start(trial.id, trial.values, out, orders);
    } else {
      break;
    }
  }
  if (!list_ && !stop_ && has_room()) ask_search(now, static_cast<std::size_t>(most_more()), out);
  end_if_done(now, out);
}

void Experiment::start(tune::TrialId trial, tune::Values values, CoordinatorCommands& out, TrialOrders& orders) {
  trials_[trial].values = values;
  ++at_work_;
  rule_->add_trial(trial, values);
  record({{"event", "trial_started"}, {"trial", trial}, {"run", run_of(trial)}, {"parameters", values}}, out);
  auto run = definition_of(trial);
  if (!run) return end_trial(trial, tune::Outcome::kFailed, run.error().message, out, orders);
  orders.emplace_back(trial_order::Start{std::move(run).value()});
}

Result<RunDefinition> Experiment::definition_of(tune::TrialId trial) const {
  const TrialRecord& its = trials_.at(trial);
  auto job = job_of(trial, its.values, its.origin);
  if (!job) return job.error();
  RunDefinition run;
  run.id = run_of(trial);
  run.parent = definition_.id;
  run.job = std::move(job).value();
  run.run_dir = run_dir_of(trial);
  run.placement_timeout = definition_.placement_timeout;
  run.priority = definition_.priority;
  run.owner = definition_.owner;
  run.may_be_root = definition_.may_be_root;
  run.is_of_admin = definition_.is_of_admin;
  return run;
}

Result<job::JobSpec> Experiment::job_of(tune::TrialId trial, const tune::Values& values,
                                        const std::string& origin) const {
  job::LoadResult loaded = trial_job(*definition_.base, spec_, {trial, values}, origin);
  if (loaded.job) return *std::move(loaded.job);
  std::string why;
  for (const Diagnostic& item : loaded.diagnostics.items)
    if (!item.warning && why.empty()) why = item.message;
  return Error{"its job is refused: " + why};
}

RunId Experiment::run_of(tune::TrialId trial) const {
  return fmt::format("{}.{:04}", definition_.id, trial);
}

std::string Experiment::run_dir_of(tune::TrialId trial) const {
  return fmt::format("{}/trials/{:04}", definition_.run_dir, trial);
}

bool Experiment::may_need(const RunId& run) const {
  const auto trial = trial_of(run);
  if (!trial) return false;
  const TrialRecord& its = trials_.at(*trial);
  return its.interrupted || its.phase != TrialPhase::kEnded || may_copy_ended();
}

std::optional<tune::TrialId> Experiment::trial_of(const RunId& run) const {
  const std::string front = definition_.id + ".";
  if (!run.starts_with(front)) return std::nullopt;
  tune::TrialId trial = 0;
  const char* end = run.data() + run.size();
  const auto [stop, error] = std::from_chars(run.data() + front.size(), end, trial);
  if (error != std::errc() || stop != end || !trials_.contains(trial)) return std::nullopt;
  return trial;
}

// ---- what is decided ----

bool Experiment::is_better(double left, double right) const {
  return spec_.mode == tune::Mode::kMax ? left > right : left < right;
}

/// A trial whose end was decided already has it.
void Experiment::obey(const tune::Decisions& decisions, CoordinatorCommands& out, TrialOrders& orders) {
  for (const tune::Decision& decision : decisions) {
    const bool is_silent =
        decision.action == tune::Action::kContinue &&
        (decision.reason == tune::Reason::kNoRule || decision.reason == tune::Reason::kBetweenRungs ||
         decision.reason == tune::Reason::kBetweenIntervals || decision.reason == tune::Reason::kWarmUp ||
         decision.reason == tune::Reason::kRepeated);
    const auto known = trials_.find(decision.trial);
    if (is_silent || known == trials_.end()) continue;
    TrialRecord& its = known->second;
    if (its.phase == TrialPhase::kStopping || its.phase == TrialPhase::kEnded) {
      if (decision.action == tune::Action::kStop) forget_interrupted(decision.trial);
      continue;
    }
    const std::string why = in_words(decision);
    Line event = {{"event", "trial_decided"}, {"why", why}};
    event.update(Line(tune::to_json(decision)));
    record(std::move(event), out);
    its.reason = why;
    switch (decision.action) {
      case tune::Action::kContinue:
        its.reason.clear();
        break;
      case tune::Action::kStop:
        // Who has had all that a trial may have is no worse than others.
        stop(decision.trial,
             decision.reason == tune::Reason::kMaxEpochs ? tune::Outcome::kCompleted : tune::Outcome::kStopped, why, {},
             out, orders);
        break;
      case tune::Action::kPause:
        its.phase = TrialPhase::kPausing;
        orders.emplace_back(trial_order::Pause{run_of(decision.trial), why});
        break;
      case tune::Action::kResume:
        its.phase = TrialPhase::kRunning;
        --paused_;
        ++at_work_;
        orders.emplace_back(trial_order::Resume{run_of(decision.trial)});
        break;
      case tune::Action::kExploit:
        exploit(decision, orders);
        break;
    }
  }
}

void Experiment::stop(tune::TrialId trial, tune::Outcome outcome, std::string reason, const StopRequest& request,
                      CoordinatorCommands& out, TrialOrders& orders) {
  TrialRecord& its = trials_.at(trial);
  if (its.phase == TrialPhase::kPaused) {
    --paused_;
    ++at_work_;
  }
  its.phase = TrialPhase::kStopping;
  if (!its.interrupted) {
    its.held.clear();  // As if nothing had crossed.
    copies_.erase(trial);
  }
  its.outcome = outcome;
  its.reason = std::move(reason);
  record({{"event", "trial_stopping"}, {"trial", trial}, {"as", tune::word_of(outcome)}, {"why", its.reason}}, out);
  orders.emplace_back(trial_order::Stop{run_of(trial), request});
}

}  // namespace sgd::core
