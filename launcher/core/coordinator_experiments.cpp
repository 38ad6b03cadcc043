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

/// Before anything else that the donor does: its checkpoint may not be kept for long. Where files travel, what its node
/// has not yet sent cannot be copied: then it is an older one, or none.
void Coordinator::take_checkpoint(TimePoint now, const trial_order::Exploit& order, CoordinatorCommands& out) {
  const auto donor = runs_.find(order.donor);
  const std::string from = donor == runs_.end() ? std::string() : donor->second.checkpoint_to_copy(order.step);
  const std::string to = from.empty() ? std::string() : order.to + from.substr(from.rfind('/'));
  RunMachine& run = runs_.at(order.run);
  Experiment& parent = experiments_.at(*run.definition().parent);
  if (!from.empty()) {
    out.push_back(TakeCheckpoint{order.run, from, to});
    const ScoredCheckpoint best = run.best_checkpoint();
    if (const std::string kept = parent.keep_best(order.run, order.donor, best); !kept.empty())
      out.push_back(TakeCheckpoint{order.run, best.path, kept});
  }
  parent.on_taken(order.run, from, to, out);
  run.on_pause(now, order.reason, from.empty(), out);
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
    if (const auto* exploit = std::get_if<trial_order::Exploit>(&order)) take_checkpoint(now, *exploit, out);
    if (const auto* clone = std::get_if<trial_order::Clone>(&order)) {
      out.push_back(ChangeJob{id, *clone->run.job.resolved});
      run->second.on_clone(clone->run.job);
    }
    note_touched(id);
  }
}

}  // namespace sgd::core
