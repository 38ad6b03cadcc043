// Experiment: how its trials pause, copy each other, end and go on, and with them the experiment.

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/exit_codes.hpp"
#include "common/json/lenient.hpp"
#include "common/messages/transfer.hpp"
#include "launcher/core/experiment.hpp"
#include "launcher/core/stop_request.hpp"

namespace sgd::core {

using coordinator_command::FinishRun;
using coordinator_command::RecordBest;
using coordinator_command::RecordEvent;
using Line = nlohmann::ordered_json;

void Experiment::exploit(const tune::Decision& decision, TrialOrders& orders) {
  TrialRecord& its = trials_.at(decision.trial);
  its.phase = TrialPhase::kPausing;
  its.next = decision.values;
  its.waits = decision.waits;
  ++its.clones;
  HeldCopy& copy = copies_[decision.trial] = {};
  copy.donor = *decision.donor;
  copy.donor_iteration = decision.donor_iteration;
  copy.donor_step = decision.donor_step;
  copy.donor_clones = trials_.at(copy.donor).clones;
  copy.iteration = decision.iteration;
  copy.step = its.steps.empty() ? 0 : its.steps.rbegin()->first;
  orders.emplace_back(trial_order::Exploit{run_of(decision.trial)});
}

void Experiment::on_held(const RunId& run, TimePoint now, Duration limit) {
  const auto trial = trial_of(run);
  if (!trial || !copies_.contains(*trial)) return;
  copies_.at(*trial).since = now;
  copies_.at(*trial).limit = limit;
}

std::optional<TimePoint> Experiment::next_copy() const {
  std::optional<TimePoint> next;
  for (const auto& [trial, copy] : copies_)
    if (may_copy(trial)) next = std::min(next.value_or(TimePoint::max()), copy.since + copy.limit);
  return next;
}

bool Experiment::is_second_hand(const HeldCopy& copy) const {
  const TrialRecord& donor = trials_.at(copy.donor);
  return donor.clones == copy.donor_clones && (copies_.contains(copy.donor) || !donor.taken.empty());
}

std::vector<tune::TrialId> Experiment::copiers_of(tune::TrialId donor) const {
  std::vector<tune::TrialId> copiers;
  for (const auto& [trial, copy] : copies_)
    if (copy.donor == donor && may_copy(trial) && !is_second_hand(copy)) copiers.push_back(trial);
  return copiers;
}

HeldCopy Experiment::end_copy(tune::TrialId trial) {
  const HeldCopy copy = copies_.at(trial);
  copies_.erase(trial);
  return copy;
}

std::string Experiment::taken_folder(tune::TrialId trial) const {
  return fmt::format("{}/{}/{:04}", run_dir_of(trial), transfer::kTakenFolder, trials_.at(trial).clones);
}

/// Where others may copy it, so that a checkpoint of it is known by its step.
void Experiment::note_step(TrialRecord& its, std::int64_t step) const {
  if (!may_copy_ended() || step <= 0) return;
  its.steps[step] = its.iteration;
  if (its.steps.size() > kReportStepsMax) its.steps.erase(its.steps.begin());
}

/// Of the donor's last report that has gone into `checkpoint`, as far as that is known.
std::int64_t Experiment::iteration_of(const TrialRecord& donor, const HeldCopy& copy, const std::string& checkpoint) {
  const auto step = step_of(checkpoint);
  if (!step || donor.steps.empty()) return copy.donor_iteration;
  const auto after = donor.steps.upper_bound(*step);
  if (after != donor.steps.begin()) return std::prev(after)->second;
  return std::max<std::int64_t>(after->second - 1, 0);
}

std::string Experiment::keep_best(const RunId& run, const RunId& donor, const ScoredCheckpoint& best) {
  TrialRecord& its = trials_.at(*trial_of(run));
  if (!its.best || its.best_state) return {};
  BestState& state = its.best_state.emplace(BestState{its.values, its.origin, {}});
  const std::optional<double>& other = trials_.at(*trial_of(donor)).best;
  if (best.path.empty() || best.score != its.best || (other && is_better(*other, *its.best))) return {};
  const std::string folder = fmt::format("{}/{}/{:04}", run_dir_of(*trial_of(run)), transfer::kBestFolder, its.clones);
  return state.checkpoint = folder + best.path.substr(best.path.rfind('/'));
}

BestState Experiment::best_state_of(const TrialRecord& its) {
  return its.best_state.value_or(BestState{its.values, its.origin, its.checkpoint});
}

/// Without the state, the values are worth nothing. Who decides is told where the trial really is: the checkpoint may
/// be an older or a newer one than that which was compared.
void Experiment::on_taken(tune::TrialId trial, const HeldCopy& copy, const std::string& from, const std::string& to,
                          CoordinatorCommands& out) {
  TrialRecord& its = trials_.at(trial);
  const TrialRecord& donor = trials_.at(copy.donor);
  const std::int64_t iteration = from.empty() ? copy.iteration : iteration_of(donor, copy, from);
  const std::int64_t step = from.empty() ? copy.step : step_of(from).value_or(copy.donor_step);
  its.taken = to;
  record({{"event", "trial_cloned"},
          {"trial", trial},
          {"donor", copy.donor},
          {"checkpoint", from.empty() ? Line(nullptr) : Line(from)},
          {"iteration", iteration}},
         out);
  rule_->on_copied(trial, iteration, step);
  if (from.empty()) {
    its.next = nullptr;
    return rule_->on_values(trial, its.values);
  }
  its.held.clear();  // It has said that of a state that it gives up.
  its.steps = {donor.steps.begin(), donor.steps.upper_bound(step)};
  // A command's reports are counted here, and go on where the donor's were.
  if (!definition_.job.training) its.reports = iteration;
}

void Experiment::on_paused(const RunId& run, CoordinatorCommands& out, TrialOrders& orders) {
  const auto trial = trial_of(run);
  if (!trial || !is_readable() || trials_.at(*trial).phase != TrialPhase::kPausing) return;
  if (copies_.contains(*trial)) return;  // It may be told what to go on from at any time.
  TrialRecord& its = trials_.at(*trial);
  if (const Status cloned = become_clone(*trial, orders); !cloned)
    return stop(*trial, tune::Outcome::kFailed, cloned.error().message, {}, out, orders);
  if (std::exchange(its.waits, true)) {
    its.phase = TrialPhase::kPaused;
    --at_work_;
    ++paused_;
    record({{"event", "trial_paused"}, {"trial", *trial}, {"iteration", its.iteration}}, out);
    return;
  }
  its.phase = TrialPhase::kRunning;
  orders.emplace_back(trial_order::Resume{run});
  deliver_held(*trial, out, orders);
}

/// One that was to take another one's state has no rank: it has it from here on.
Status Experiment::become_clone(tune::TrialId trial, TrialOrders& orders) {
  TrialRecord& its = trials_.at(trial);
  if (its.taken.empty()) return {};
  its.origin = std::exchange(its.taken, {});
  its.values = std::exchange(its.next, nullptr);
  auto clone = definition_of(trial);
  if (!clone) return clone.error();
  orders.emplace_back(trial_order::Clone{std::move(clone).value()});
  return {};
}

void Experiment::on_ended(const RunId& run, const RunOutcome& outcome, CoordinatorCommands& out, TrialOrders& orders) {
  const auto trial = trial_of(run);
  if (!trial || trials_.at(*trial).phase == TrialPhase::kEnded) return;
  TrialRecord& its = trials_.at(*trial);
  its.wall_s = outcome.wall_s;
  const std::string folder = run_dir_of(*trial) + "/";
  const auto absolute = [&](const std::string& path) { return path.starts_with('/') ? path : folder + path; };
  if (!outcome.checkpoint.empty()) its.checkpoint = absolute(outcome.checkpoint);
  if (outcome.best_checkpoints.is_array() && !outcome.best_checkpoints.empty() &&
      read_or(outcome.best_checkpoints.front(), "metric", "") == spec_.metric)
    its.checkpoint = absolute(read_or(outcome.best_checkpoints.front(), "path", ""));
  if (its.reports == 0 && is_readable() && outcome.state == "succeeded") note_missing(*trial, outcome.metrics, out);
  // It was at its end before it could take another one's state: that state is not. Else how fast it is would decide.
  const bool is_copying = its.phase == TrialPhase::kPausing && (copies_.contains(*trial) || !its.taken.empty());
  if (outcome.state == "succeeded" && is_copying && is_readable()) return on_paused(run, out, orders);
  const bool is_failed = outcome.state == "failed" || outcome.state == "not_placed";
  if (is_failed) {
    if (may_restart(its, outcome)) return restart(*trial, outcome.error, out, orders);
    if (outcome.state == "not_placed") ++unplaced_;
    return end_trial(*trial, tune::Outcome::kFailed, outcome.error, out, orders);
  }
  if (outcome.state == "succeeded") {
    const bool was_asked = its.phase == TrialPhase::kStopping;
    return end_trial(*trial, tune::Outcome::kCompleted, was_asked ? its.reason : "", out, orders);
  }
  if (its.phase == TrialPhase::kStopping) return end_trial(*trial, its.outcome, its.reason, out, orders);
  end_trial(*trial, tune::Outcome::kCancelled, outcome.error, out, orders);
}

bool Experiment::may_restart(const TrialRecord& trial, const RunOutcome& outcome) const {
  const bool is_wanted = trial.phase == TrialPhase::kRunning || trial.phase == TrialPhase::kPausing;
  return outcome.state == "failed" && is_readable() && is_wanted && !stop_ && trial.failures < spec_.max_failures;
}

/// From its newest checkpoint; who decides is not told, since the trial has not ended. One that was to pause has no
/// rank any more: it waits as if it had saved, and is begun again when it is to go on.
void Experiment::restart(tune::TrialId trial, const std::string& error, CoordinatorCommands& out, TrialOrders& orders) {
  TrialRecord& its = trials_.at(trial);
  auto run = definition_of(trial);
  if (!run) return end_trial(trial, tune::Outcome::kFailed, run.error().message, out, orders);
  ++its.failures;
  record({{"event", "trial_restarted"}, {"trial", trial}, {"failures", its.failures}, {"why", error}}, out);
  if (its.phase == TrialPhase::kPausing) return on_paused(run_of(trial), out, orders);
  orders.emplace_back(trial_order::Start{std::move(run).value()});
}

void Experiment::end_trial(tune::TrialId trial, tune::Outcome outcome, std::string reason, CoordinatorCommands& out,
                           TrialOrders& orders) {
  TrialRecord& its = trials_.at(trial);
  if (its.phase != TrialPhase::kStopping || outcome != tune::Outcome::kCancelled) take_held(trial, out, orders);
  --(its.phase == TrialPhase::kPaused ? paused_ : at_work_);
  ++ended_;
  its.phase = TrialPhase::kEnded;
  its.outcome = outcome;
  its.reason = std::move(reason);
  if (outcome == tune::Outcome::kFailed) {
    if (failed_++ == 0) first_error_ = fmt::format("trial {}: {}", trial, its.reason);
  }
  Line event = {{"event", "trial_ended"},
                {"trial", trial},
                {"state", tune::word_of(outcome)},
                {"iteration", its.iteration},
                {"value", its.value ? Line(*its.value) : Line(nullptr)},
                {"best", its.best ? Line(*its.best) : Line(nullptr)},
                {"best_iteration", its.best_iteration},
                {"wall_s", its.wall_s}};
  if (!its.reason.empty()) event["why"] = its.reason;
  record(std::move(event), out);
  if (protocol_) protocol_->on_end(trial);
  if (!is_readable()) return;
  note_best(trial, out);
  if (outcome != tune::Outcome::kCancelled) its.interrupted.reset();
  if (!its.interrupted) copies_.erase(trial);
  // To who decides it is what it was: it may go on. One that cannot become a clone fails then, by its definition.
  if (its.interrupted) return static_cast<void>(become_clone(trial, orders));
  obey(rule_->on_end(trial, outcome), out, orders);
  drop_if_done(trial);
}

/// Who decides has done with it while it was being stopped: it does not go on when its experiment does.
void Experiment::forget_interrupted(tune::TrialId trial) {
  TrialRecord& its = trials_.at(trial);
  if (!std::exchange(its.interrupted, std::nullopt)) return;
  its.held.clear();
  copies_.erase(trial);
  drop_if_done(trial);
}

/// The events have all of it.
void Experiment::drop_if_done(tune::TrialId trial) {
  const auto found = trials_.find(trial);
  const bool is_done = found != trials_.end() && found->second.phase == TrialPhase::kEnded;
  if (is_done && !found->second.interrupted && trial != best_ && !may_copy_ended()) trials_.erase(found);
}

/// Of two that are equal the earlier trial is the best one, whichever ends first.
void Experiment::note_best(tune::TrialId trial, CoordinatorCommands& out) {
  const TrialRecord& its = trials_.at(trial);
  if (!its.best) return;
  const double before = best_ ? *trials_.at(*best_).best : 0;
  if (best_ && !is_better(*its.best, before) && (*its.best != before || trial > *best_)) return;
  if (const auto former = std::exchange(best_, trial)) drop_if_done(*former);
  const BestState state = best_state_of(its);
  const auto job = job_of(trial, state.values, state.origin);
  Line best = {{"experiment", definition_.id},
               {"trial", trial},
               {"metric", spec_.metric},
               {"mode", spec_.mode == tune::Mode::kMax ? "max" : "min"},
               {"value", *its.best},
               {"iteration", its.best_iteration},
               {"parameters", state.values},
               {"folder", run_dir_of(trial)},
               {"checkpoint", state.checkpoint.empty() ? Line(nullptr) : Line(state.checkpoint)},
               {"job", job ? Line(*job.value().resolved) : Line(nullptr)}};
  record({{"event", "best_changed"}, {"trial", trial}, {"value", *its.best}}, out);
  out.push_back(RecordBest{definition_.id, std::move(best)});
}

// ---- the end ----

void Experiment::on_stop(TimePoint now, const StopRequest& request, CoordinatorCommands& out, TrialOrders& orders) {
  if (is_over_) return;
  if (!stop_) stop_ = request;
  if (request.at_once) stop_->at_once = true;
  for (auto& [trial, its] : trials_) {
    if (its.phase == TrialPhase::kStopping) orders.emplace_back(trial_order::Stop{run_of(trial), request});
    if (its.phase == TrialPhase::kStopping || its.phase == TrialPhase::kEnded) continue;
    // One that only changes its state and its values is at work to who decides.
    const bool goes_on = its.phase == TrialPhase::kRunning || (its.phase == TrialPhase::kPausing && !its.waits);
    const bool is_held = may_copy(trial);
    its.interrupted = is_held ? TrialPhase::kPausing : goes_on ? TrialPhase::kRunning : TrialPhase::kPaused;
    its.waits = its.waits || !is_held;
    stop(trial, tune::Outcome::kCancelled, words(request), request, out, orders);
  }
  end_if_done(now, out);
}

std::string Experiment::why_not_resumed(std::int64_t samples) const {
  if (!is_readable()) return unreadable_;
  const auto is_interrupted = [](const auto& trial) { return trial.second.interrupted.has_value(); };
  if (samples > 0 && static_cast<std::uint64_t>(samples) < spec_.samples)
    return fmt::format("it has {} samples already: fewer are not possible", spec_.samples);
  if (samples > 0)
    if (std::string misfit = misfit_of(samples); !misfit.empty()) return misfit;
  if (no_more_ && samples > 0 && static_cast<std::uint64_t>(samples) > spec_.samples)
    return "its search program has said \"no_more\": it makes no trials for more samples";
  if (!is_over_ || std::any_of(trials_.begin(), trials_.end(), is_interrupted) || more_may_come()) return {};
  if (!search_error_.empty() || stop_) return {};  // What was stopped with nothing left to do is done then.
  if (samples > 0 && static_cast<std::uint64_t>(samples) > spec_.samples) return {};
  if (no_more_)
    return fmt::format("all of its {} trials have ended, and its search program has said \"no_more\"", ended_);
  return fmt::format("all of its {} trials have ended: --samples N with more than {} makes more of them", ended_,
                     spec_.samples);
}

void Experiment::on_resumed(TimePoint now, std::int64_t samples, CoordinatorCommands& out, TrialOrders& orders) {
  if (!why_not_resumed(samples).empty()) return;
  if (samples > 0) {
    definition_.base->given["tune"]["samples"] = samples;
    definition_.job.resolved.edit()["tune"]["samples"] = samples;
    read_spec();
    SGD_ASSERT(is_readable());  // Of another number of samples only.
    make_list();
  }
  reopen_search(now);
  record({{"event", "experiment_resumed"}, {"trials", planned()}}, out);
  has_told_last_ = false;
  if (!is_over_) return;
  is_over_ = false;
  stop_.reset();
  outcome_ = {};
  resumed_at_ = now;
  std::vector<std::pair<tune::TrialId, std::string>> refused;
  for (auto& [trial, its] : trials_) {
    if (!its.interrupted) continue;
    its.phase = *std::exchange(its.interrupted, std::nullopt);
    --ended_;
    ++(its.phase == TrialPhase::kPaused ? paused_ : at_work_);
    record({{"event", "trial_resumed"}, {"trial", trial}, {"state", name(its.phase)}}, out);
    if (its.phase == TrialPhase::kPaused) continue;
    if (its.phase == TrialPhase::kPausing) {
      copies_.at(trial).since = now;  // It begins again with what it takes, or without.
      continue;
    }
    if (auto run = definition_of(trial))
      orders.emplace_back(trial_order::Start{std::move(run).value()});
    else
      refused.emplace_back(trial, run.error().message);
  }
  // When all are what they were: what is decided then may be about any of them.
  for (const auto& [trial, why] : refused) end_trial(trial, tune::Outcome::kFailed, why, out, orders);
}

void Experiment::end_if_done(TimePoint now, CoordinatorCommands& out) {
  if (is_over_ || at_work_ > 0) return;
  if (!stop_ && is_readable() && (more_may_come() || paused_ > 0)) return;
  finish(now, out);
}

void Experiment::finish(TimePoint now, CoordinatorCommands& out) {
  is_over_ = true;
  outcome_.state = "succeeded";
  outcome_.exit_code = exit_code::kSucceeded;
  const auto fail = [this](const char* state, int code, std::string error) {
    outcome_.state = state;
    outcome_.exit_code = code;
    outcome_.error = std::move(error);
  };
  if (!is_readable()) {
    fail("failed", exit_code::kFailed, unreadable_);
  } else if (stop_) {
    fail(state_of(*stop_).c_str(), exit_code_of(*stop_), words(*stop_));
  } else if (!search_error_.empty()) {
    fail("failed", exit_code::kFailed, search_error_);
  } else if (best_) {
    // Some have a result: those that failed are counted.
  } else if (ended_ > 0 && unplaced_ == ended_) {
    fail("not_placed", exit_code::kNotPlaced, "no trial could be placed; " + first_error_);
  } else if (ended_ > 0 && failed_ == ended_) {
    fail("failed", exit_code::kFailed, fmt::format("all {} trials have failed; {}", ended_, first_error_));
  } else {
    fail("failed", exit_code::kFailed, fmt::format("no trial has reported a finite \"{}\"", spec_.metric));
  }
  outcome_.failures = static_cast<int>(failed_);
  outcome_.wall_s = worked_s_ = wall_s(now);
  Line best = nullptr;
  if (best_) {
    const TrialRecord& its = trials_.at(*best_);
    const BestState state = best_state_of(its);
    outcome_.checkpoint = state.checkpoint;
    best = {{"trial", *best_}, {"value", *its.best}, {"iteration", its.best_iteration}, {"parameters", state.values}};
  }
  outcome_.tune = {{"metric", spec_.metric},
                   {"mode", spec_.mode == tune::Mode::kMax ? "max" : "min"},
                   {"trials", planned()},
                   {"ended", ended_},
                   {"failed", failed_},
                   {"best", best},
                   {"may_go_on", why_not_resumed(0).empty()}};
  record({{"event", "run_finished"},
          {"state", outcome_.state},
          {"exit_code", outcome_.exit_code},
          {"failures", outcome_.failures}},
         out);
  out.push_back(FinishRun{definition_.id, outcome_});
}

/// Without the time for which it had ended.
double Experiment::wall_s(TimePoint now) const {
  return worked_s_ + to_seconds(now - resumed_at_.value_or(submitted_at_));
}

void Experiment::tell_open(CoordinatorCommands& out) const {
  if (is_over_) out.push_back(FinishRun{definition_.id, outcome_});
}

/// Nobody has heard the search program meanwhile, nor what nodes have saved.
void Experiment::on_restarted(TimePoint now, CoordinatorCommands& out, TrialOrders& orders) {
  if (owed_since_) owed_since_ = now;
  for (auto& [trial, copy] : copies_) copy.since = now;
  if (is_over_) return;
  record({{"event", "coordinator_restarted"}}, out);
  if (is_readable()) return;
  record({{"event", "experiment_unreadable"}, {"why", unreadable_}}, out);
  for (const auto& [trial, its] : trials_)
    if (its.phase != TrialPhase::kStopping && its.phase != TrialPhase::kEnded)
      stop(trial, tune::Outcome::kCancelled, "its experiment cannot go on", {}, out, orders);
  end_if_done(now, out);
}

RunSnapshot Experiment::snapshot(TimePoint now) const {
  RunSnapshot shot;
  shot.run = definition_.id;
  shot.name = definition_.job.name;
  shot.owner = definition_.owner;
  shot.priority = definition_.priority;
  shot.phase = is_over_ ? RunPhase::kFinished : stop_ ? RunPhase::kStopping : RunPhase::kRunning;
  shot.num_workers = definition_.job.num_workers;
  shot.failures = static_cast<int>(failed_);
  shot.wall_s = is_over_ ? outcome_.wall_s : wall_s(now);
  shot.checkpoint = outcome_.checkpoint;
  shot.reason = is_over_ ? outcome_.error
                         : fmt::format("{} of {} trials have ended, {} are at work", ended_, planned(), at_work_);
  return shot;
}

void Experiment::record(Line event, CoordinatorCommands& out) const {
  out.push_back(RecordEvent{definition_.id, std::move(event)});
}

}  // namespace sgd::core
