// How Coordinator keeps runs that own runs: what children tell goes to their experiment, and its orders are carried out
// in the same event, so that a replay needs no event of theirs.

#include <algorithm>
#include <utility>

#include "common/base/assert.hpp"
#include "common/json/lenient.hpp"
#include "launcher/core/coordinator.hpp"
#include "launcher/core/stop_request.hpp"

namespace sgd::core {

using coordinator_command::BeginTrial;
using coordinator_command::ChangeJob;
using coordinator_command::FinishRun;
using coordinator_command::RecordEvent;
using coordinator_command::RecordMetrics;
using coordinator_command::TakeCheckpoint;

void Coordinator::begin_run(TimePoint now, const RunDefinition& run) {
  const auto [place, is_new] = runs_.try_emplace(run.id, run, now, settings_.files_travel);
  SGD_ASSERT(is_new);
  live_[run.id] = &place->second;
  tickets_[run.id].submission = ++submissions_;
  capacity_changed_ = true;
}

void Coordinator::begin_experiment(TimePoint now, const RunDefinition& run, CoordinatorCommands& out) {
  const auto [place, is_new] = experiments_.try_emplace(run.id, run, now);
  SGD_ASSERT(is_new);
  tickets_[run.id].submission = ++submissions_;
  place->second.begin(out);
  advance(now, place->second, out);
}

/// Of a run that has ended.
bool Coordinator::is_needed(const RunId& run) const {
  const auto machine = runs_.find(run);
  if (machine == runs_.end() || !machine->second.definition().parent) return false;
  const auto parent = experiments_.find(*machine->second.definition().parent);
  return parent != experiments_.end() && parent->second.may_need(run);
}

void Coordinator::forget_trials(const RunId& experiment, CoordinatorCommands& out) {
  const std::string front = experiment + ".";
  std::vector<RunId> trials;
  for (auto run = runs_.lower_bound(front); run != runs_.end() && run->first.starts_with(front); ++run)
    if (run->second.definition().parent == experiment) trials.push_back(run->first);
  for (const RunId& trial : trials) forget(trial, out);
}

/// The command number `index` may be a word of a trial. Its copy: what follows may move the commands.
void Coordinator::tell_parent(TimePoint now, std::size_t index, CoordinatorCommands& out) {
  const auto parent_of = [this](const RunId& run) -> Experiment* {
    const auto child = runs_.find(run);
    if (child == runs_.end() || !child->second.definition().parent) return nullptr;
    const auto parent = experiments_.find(*child->second.definition().parent);
    return parent == experiments_.end() ? nullptr : &parent->second;
  };
  TrialOrders orders;
  Experiment* parent = nullptr;
  if (const auto* metrics = std::get_if<RecordMetrics>(&out[index])) {
    if (parent = parent_of(metrics->run); parent == nullptr) return;
    const RecordMetrics told = *metrics;
    parent->on_line(told, out, orders);
  } else if (const auto* finished = std::get_if<FinishRun>(&out[index])) {
    if (parent = parent_of(finished->run); parent == nullptr) return;
    const FinishRun told = *finished;
    parent->on_ended(told.run, told.outcome, out, orders);
  } else if (const auto* event = std::get_if<RecordEvent>(&out[index])) {
    if (event->event.front() == "checkpoint_saved") {
      parent = parent_of(event->run);
      return parent == nullptr || parent->copies().empty() ? void() : advance(now, *parent, out);
    }
    const bool is_pause = event->event.front() == "paused";
    if (!is_pause && event->event.front() != "last_line_refused") return;
    if (parent = parent_of(event->run); parent == nullptr) return;
    const RunId run = event->run;
    if (!is_pause) return parent->on_line_refused(run, read_or(event->event, "why", ""), out);
    parent->on_paused(run, out, orders);
  } else {
    return;
  }
  carry_out(now, orders, out);
  advance(now, *parent, out);
}

/// Trials for which there is room now.
void Coordinator::advance(TimePoint now, Experiment& experiment, CoordinatorCommands& out) {
  settle_copies(now, experiment, out);
  const auto waits = [&experiment](const auto& run) {
    return run.second->definition().parent == experiment.definition().id && run.second->waits_for_room();
  };
  TrialOrders orders;
  const auto waiting = static_cast<std::size_t>(std::count_if(live_.begin(), live_.end(), waits));
  const bool looks = waiting == 0 && experiment.may_begin_many();
  const std::int64_t room = looks ? room_for_trials(experiment.definition().job) : 0;
  experiment.advance(now, waiting, room, out, orders);
  carry_out(now, orders, out);
}

/// With each trial on one node. One look at all nodes for many trials: a look for each would be their square.
std::int64_t Coordinator::room_for_trials(const job::JobSpec& job) {
  const auto waits = [](const auto& run) { return run.second->waits_for_room(); };
  if (std::any_of(live_.begin(), live_.end(), waits)) return 0;  // It may be theirs.
  const Demand demand{job.num_workers, job.num_workers, job.per_worker, job.placement};
  std::int64_t trials = 0;
  for (const auto& [node, capacity] : capacities(offers(), holdings()))
    trials += room(node, capacity, demand) / std::max(job.num_workers, 1);
  return trials;
}

/// Who may have as many trials as there is room for has seen that the last one has got its place.
void Coordinator::advance_all(TimePoint now, CoordinatorCommands& out) {
  for (auto& [id, experiment] : experiments_)
    if (!experiment.finished()) advance(now, experiment, out);
}

void Coordinator::on_experiment_resumed(TimePoint now, const coordinator_event::ExperimentResumed& resumed,
                                        CoordinatorCommands& out) {
  const auto known = experiments_.find(resumed.run);
  if (known == experiments_.end()) return;
  TrialOrders orders;
  std::erase(finished_, resumed.run);
  known->second.on_resumed(now, resumed.samples, out, orders);
  settle_copies(now, known->second, out);  // As their donors have ended, before these go on.
  carry_out(now, orders, out);
  advance(now, known->second, out);
}

/// What an experiment's search program says, or why nobody hears it any more.
void Coordinator::on_search(TimePoint now, const RunId& run, const std::string& words, bool is_line,
                            CoordinatorCommands& out) {
  const auto known = experiments_.find(run);
  if (known == experiments_.end()) return;
  TrialOrders orders;
  if (is_line)
    known->second.on_search_said(now, words, out, orders);
  else
    known->second.on_search_failed(words, out);
  carry_out(now, orders, out);
  advance(now, known->second, out);
}

/// A trial that goes on after its run has ended is that run again, in its folder, from what it has left.
void Coordinator::begin_trial(TimePoint now, RunDefinition run, CoordinatorCommands& out) {
  std::optional<RunState> former;
  if (const auto before = runs_.find(run.id); before != runs_.end()) {
    SGD_ASSERT(before->second.finished());  // Else ranks that are at work would be forgotten.
    run.past = before->second.definition().past;
    former = before->second.state();
    std::erase(finished_trials_, run.id);
    tickets_.erase(run.id);
    live_.erase(run.id);
    runs_.erase(before);
  }
  out.push_back(BeginTrial{run});
  if (run.past)
    out.push_back(RecordEvent{run.id,
                              {{"event", "run_resumed"},
                               {"run", run.id},
                               {"from_generation", run.past->generation},
                               {"step", run.past->steps}}});
  begin_run(now, run);
  if (former) runs_.at(run.id).note_former(*former);
}

void Coordinator::hold_copy(TimePoint now, RunMachine& run, CoordinatorCommands& out) {
  Experiment& experiment = experiments_.at(*run.definition().parent);
  run.note_taking(true);
  experiment.on_held(run.definition().id, now, settings_.copy_limit);
  settle_copies(now, experiment, out);
}

/// A donor is compared by what it reports, and saves that state only then: who copies it at once would get the one
/// before, or none, by chance.
void Coordinator::settle_copies(TimePoint now, Experiment& experiment, CoordinatorCommands& out) {
  const auto& copies = experiment.copies();
  const auto first_due = [&] {
    return std::find_if(copies.begin(), copies.end(),
                        [&](const auto& copy) { return is_due(now, experiment, copy.first, copy.second); });
  };
  for (auto due = first_due(); due != copies.end(); due = first_due())
    take_checkpoint(now, experiment, tune::TrialId(due->first), out);
}

/// What it waits for is stored, or something newer, or nothing more comes, or that takes too long.
bool Coordinator::is_due(TimePoint now, const Experiment& experiment, tune::TrialId trial, const HeldCopy& copy) const {
  if (!experiment.may_copy(trial)) return false;
  const auto donor = runs_.find(experiment.run_of(copy.donor));
  if (donor == runs_.end() || now >= copy.since + copy.limit) return true;
  const std::string stored = state_to_copy(experiment, copy);
  if (experiment.is_second_hand(copy)) return !stored.empty();
  if (!stored.empty() && step_of(stored).value_or(copy.donor_step) >= copy.donor_step) return true;
  if (!donor->second.finished() && experiment.record_of(copy.donor).phase != TrialPhase::kPaused) return false;
  const auto is_on_its_way = [&copy](const Arrival& one) {
    return one.is_accepted && !one.is_stored && step_of(one.path).value_or(0) >= copy.donor_step;
  };
  const Arrivals& arrivals = donor->second.state().arrivals_;
  return std::none_of(arrivals.begin(), arrivals.end(), is_on_its_way);
}

/// As far as it is stored; empty: nothing is. Where files travel, what its node has not yet sent cannot be copied.
std::string Coordinator::state_to_copy(const Experiment& experiment, const HeldCopy& copy) const {
  if (experiment.is_second_hand(copy)) return experiment.record_of(copy.donor).taken;
  const auto donor = runs_.find(experiment.run_of(copy.donor));
  return donor == runs_.end() ? std::string() : donor->second.checkpoint_to_copy(copy.donor_step);
}

/// Before anything else that the donor does: its checkpoint may not be kept for long.
void Coordinator::take_checkpoint(TimePoint now, Experiment& experiment, tune::TrialId trial,
                                  CoordinatorCommands& out) {
  const RunId id = experiment.run_of(trial);
  const auto again = experiment.definition_of(trial);
  const bool may_go_on = !runs_.at(id).finished() || (again.ok() && runs_.at(id).definition().past);
  const std::string from = may_go_on ? state_to_copy(experiment, experiment.copies().at(trial)) : std::string();
  const std::vector<tune::TrialId> copiers = from.empty() ? std::vector<tune::TrialId>() : experiment.copiers_of(trial);
  const HeldCopy copy = experiment.end_copy(trial);
  // What they wait for is given up here.
  for (const tune::TrialId copier : copiers)
    if (experiment.may_copy(copier)) take_checkpoint(now, experiment, copier, out);
  // A run that has ended has its folder open no more.
  if (!from.empty() && runs_.at(id).finished()) begin_trial(now, again.value(), out);
  RunMachine& run = runs_.at(id);
  std::string to;
  if (!from.empty()) {
    to = experiment.taken_folder(trial) + from.substr(from.rfind('/'));
    out.push_back(TakeCheckpoint{id, from, to});
    const ScoredCheckpoint best = run.best_checkpoint();
    if (const std::string kept = experiment.keep_best(id, experiment.run_of(copy.donor), best); !kept.empty())
      out.push_back(TakeCheckpoint{id, best.path, kept});
  } else if (copy.step > 0) {
    run.note_compared(copy.step);  // It stays what it was compared as.
  }
  experiment.on_taken(trial, copy, from, to, out);
  if (run.finished()) return go_on_after_end(now, experiment, id, out);
  run.note_taking(!from.empty());
  run.on_pause(now, experiment.record_of(trial).reason, from.empty(), out);
  note_touched(id);
}

/// Of a trial whose run has ended while its copy was held, and for which there was nothing to copy.
void Coordinator::go_on_after_end(TimePoint now, Experiment& experiment, const RunId& run, CoordinatorCommands& out) {
  const RunOutcome outcome = runs_.at(run).state().outcome_;
  TrialOrders orders;
  if (outcome.state == "succeeded")
    experiment.on_ended(run, outcome, out, orders);
  else
    experiment.on_paused(run, out, orders);
  carry_out(now, orders, out);
}

void Coordinator::on_checkpoint_stored(TimePoint now, const coordinator_event::CheckpointStored& stored,
                                       CoordinatorCommands& out) {
  RunMachine& run = runs_.at(stored.run);
  run.on_checkpoint_stored(stored.path, out);
  const auto parent = experiments_.find(run.definition().parent.value_or(""));
  if (parent != experiments_.end() && !parent->second.copies().empty()) advance(now, parent->second, out);
}

/// It waits, or was ended with its experiment while it did. Behind those that wait already: one that gives its place up
/// again and again would else be in front of them each time.
void Coordinator::resume_trial(TimePoint now, RunMachine& run, CoordinatorCommands& out) {
  capacity_changed_ = true;
  if (!run.finished()) {
    Ticket& ticket = tickets_.at(run.definition().id);
    ticket.submission = ++submissions_;
    ticket.gave_way = true;
    return run.on_resume();
  }
  Experiment& experiment = experiments_.at(*run.definition().parent);
  const auto trial = experiment.trial_of(run.definition().id);
  if (!trial || !experiment.wants(*trial)) return;  // What it had said already has ended it.
  auto again = experiment.definition_of(*trial);
  if (again) return begin_trial(now, std::move(again).value(), out);
  RunOutcome refused = run.state().outcome_;
  refused.state = "failed";
  refused.error = again.error().message;
  TrialOrders orders;
  experiment.on_ended(run.definition().id, refused, out, orders);
  carry_out(now, orders, out);
  advance(now, experiment, out);
}

/// A trial may wait whose run has ended: with its experiment, or by a failure that it may go on after. Nobody tells its
/// end, and that is the one that it was asked for, whatever its run has ended with.
void Coordinator::end_waiting(TimePoint now, const RunMachine& run, const StopRequest& request,
                              CoordinatorCommands& out) {
  const RunState& state = run.state();
  const auto parent = experiments_.find(state.definition_.parent.value_or(""));
  if (parent == experiments_.end()) return;
  RunOutcome outcome = state.outcome_;
  outcome.state = "interrupted";
  outcome.error = words(request);
  TrialOrders orders;
  parent->second.on_ended(state.definition_.id, outcome, out, orders);
  carry_out(now, orders, out);
  advance(now, parent->second, out);
}

void Coordinator::carry_out(TimePoint now, const TrialOrders& orders, CoordinatorCommands& out) {
  for (const TrialOrder& order : orders) {
    if (const auto* start = std::get_if<trial_order::Start>(&order)) {
      begin_trial(now, start->run, out);
      continue;
    }
    const RunId id = std::visit(
        []<class Order>(const Order& one) {
          if constexpr (requires { one.run.id; })
            return one.run.id;
          else
            return one.run;
        },
        order);
    if (const auto experiment = experiments_.find(id); experiment != experiments_.end()) {
      TrialOrders below;
      if (const auto* stop = std::get_if<trial_order::Stop>(&order))
        experiment->second.on_stop(now, stop->request, out, below);
      carry_out(now, below, out);
      continue;
    }
    const auto run = runs_.find(id);
    if (run == runs_.end()) continue;
    if (const auto* stop = std::get_if<trial_order::Stop>(&order)) {
      if (run->second.finished()) end_waiting(now, run->second, stop->request, out);
      run->second.on_stop(now, stop->request, out);
    }
    if (const auto* pause = std::get_if<trial_order::Pause>(&order))
      run->second.on_pause(now, pause->reason, true, out);
    if (std::holds_alternative<trial_order::Resume>(order)) resume_trial(now, run->second, out);
    if (const auto* compared = std::get_if<trial_order::Compared>(&order)) run->second.note_compared(compared->step);
    if (std::holds_alternative<trial_order::Exploit>(order)) hold_copy(now, run->second, out);
    if (const auto* clone = std::get_if<trial_order::Clone>(&order)) {
      out.push_back(ChangeJob{id, *clone->run.job.resolved});
      run->second.on_clone(clone->run.job);
    }
    note_touched(id);
  }
}

}  // namespace sgd::core
