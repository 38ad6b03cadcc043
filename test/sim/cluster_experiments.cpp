// How Cluster keeps experiments: their trials are runs that nobody submits, each with a ledger of its own.

#include "launcher/core/outcome_json.hpp"
#include "test/sim/cluster.hpp"
#include "test/sim/experiment_plan.hpp"

namespace sgd::sim {

using std::chrono::milliseconds;
using namespace core::coordinator_command;

void Cluster::submit(const ExperimentPlan& plan) {
  const RunId& id = plan.definition.id;
  if (submitted_.contains(id)) return;
  const bool is_new = coordinator_alive() && !coordinator_.core().snapshot(world_.queue.now(), id);
  if (is_new && !coordinator_.paused() && asked_.insert(id).second)
    tell(core::coordinator_event::Submitted{plan.definition});
  world_.queue.after(milliseconds(500), [this, &plan] { submit(plan); });
}

void Cluster::stop_experiment(const RunId& experiment, const core::StopRequest& request) {
  tell(core::coordinator_event::StopRequested{experiment, request});
}

void Cluster::resume_when_ended(const RunId& experiment) {
  const ExperimentCheck& check = experiments_.at(experiment);
  const bool is_heard = coordinator_alive() && !coordinator_.paused() && log_.is_idle();
  if (is_heard && check.finished()) {
    const auto& known = coordinator_.core().state().experiments_;
    const auto machine = known.find(experiment);  // Else it was forgotten, with all that has ended.
    if (machine == known.end() || !machine->second.why_not_resumed(0).empty()) return;
    world_.say("{}: it is to go on", experiment);
    return tell(core::coordinator_event::ExperimentResumed{experiment, 0});
  }
  world_.queue.after(milliseconds(500), [this, experiment] { resume_when_ended(experiment); });
}

ExperimentCheck* Cluster::parent_of(const RunState& run) {
  const auto& parent = run.plan.definition.parent;
  return parent ? &experiments_.at(*parent) : nullptr;
}

/// What is decided is known to the machine, and to whoever compares with it.
void Cluster::note_trials(const core::CoordinatorCommands& commands) {
  for (const core::CoordinatorCommand& command : commands) {
    if (const auto* trial = std::get_if<BeginTrial>(&command)) {
      make_trial(trial->run);
      passes_.on_begun(trial->run.id);
    }
    const auto* record = std::get_if<RecordEvent>(&command);
    if (record == nullptr) continue;
    const std::string& what = record->event.at("event").get_ref<const std::string&>();
    if (what == "paused") passes_.on_paused(record->run);
    if (what == "trial_cloned" || (what == "trial_decided" && record->event.at("action") == "resume"))
      passes_.on_resumed(experiments_.at(record->run).run_of(record->event.at("trial")));
  }
}

void Cluster::make_trial(const core::RunDefinition& run) {
  if (trials_.contains(run.id)) return;
  const auto is_it = [&](const ExperimentPlan& plan) { return plan.definition.id == run.parent; };
  const auto& plans = world_.plan.experiments;
  const auto plan = std::find_if(plans.begin(), plans.end(), is_it);
  if (plan == plans.end()) violated("{} is a trial of {}, which nobody has submitted", run.id, run.parent.value_or(""));
  RunPlan& trial = trials_[run.id] = plan->trial;
  trial.definition = run;
  trial.definition.past.reset();
  trial.definition.job.name = run.id;
  runs_.try_emplace(run.id, world_, trial).first->second.is_begun = false;
}

void Cluster::begin_trial(const core::RunDefinition& run) {
  RunState& state = runs_.at(run.id);
  parent_of(state)->on_begin(run);
  if (std::exchange(state.is_begun, true)) state.check.begin_again(run.past ? run.past->generation : 0);
  submitted_[run.id] = world_.queue.now();
  world_.say("{}: begins{}", run.id, run.past ? " again" : "");
}

/// It must be there: who gives it may take it away only later.
void Cluster::take_checkpoint(const TakeCheckpoint& take) {
  RunState& taker = runs_.at(take.run);
  for (auto& [id, donor] : runs_) {
    if (!take.from.starts_with(donor.plan.definition.run_dir + "/")) continue;
    const Saved* saved = donor.disk.find(take.from);
    if ((saved == nullptr || !saved->is_stored) && taker.disk.find(take.to) == nullptr)
      violated("{} is to take {}, which is not there", take.run, take.from);
    if (saved != nullptr && saved->is_stored) taker.disk.take(take.to, *saved);
    return;
  }
  violated("{} is to take {}, which is nobody's", take.run, take.from);
}

bool Cluster::record_of_experiment(const core::CoordinatorCommand& command) {
  if (const auto* trial = std::get_if<BeginTrial>(&command)) {
    begin_trial(trial->run);
    return true;
  }
  if (const auto* changed = std::get_if<ChangeJob>(&command)) {
    job::LoadResult loaded = job::load_resolved(changed->job);
    RunPlan& plan = trials_.at(changed->run);
    const std::string name = plan.definition.job.name;
    plan.definition.job = loaded.job.value();
    plan.definition.job.name = name;
    RunState& run = runs_.at(changed->run);
    run.check.on_clone(run.disk.find(plan.definition.job.resume_from)->point);
    return true;
  }
  if (const auto* event = std::get_if<RecordEvent>(&command)) {
    const auto experiment = experiments_.find(event->run);
    if (experiment != experiments_.end()) {
      experiment->second.on_event(event->event);
      const std::string& what = event->event.at("event").get_ref<const std::string&>();
      // Not wanted any more, or wanted again: what it is to do begins here.
      if (what == "trial_stopping")
        runs_.at(experiment->second.run_of(event->event.at("trial"))).check.on_stop_requested();
      if (what == "trial_decided") submitted_[experiment->second.run_of(event->event.at("trial"))] = world_.queue.now();
      return true;
    }
    ExperimentCheck* parent = parent_of(runs_.at(event->run));
    if (parent != nullptr && event->event.at("event") == "paused") parent->on_trial_paused(event->run);
    return false;
  }
  const auto* finished = std::get_if<FinishRun>(&command);
  const auto experiment = finished == nullptr ? experiments_.end() : experiments_.find(finished->run);
  if (experiment == experiments_.end()) return false;
  experiment->second.on_finish(finished->outcome);
  check_memory();
  return true;
}

std::optional<std::string> Cluster::words_of(const core::CoordinatorCommand& command) {
  if (const auto* event = std::get_if<RecordEvent>(&command)) return event->run + " " + event->event.dump();
  if (const auto* metrics = std::get_if<RecordMetrics>(&command)) return metrics->run + " " + metrics->metrics.dump();
  if (const auto* finished = std::get_if<FinishRun>(&command)) {
    core::RunOutcome outcome = finished->outcome;
    outcome.steps = 0;  // Heartbeats say how many, and are not stored.
    return finished->run + " " + core::to_json(outcome).dump();
  }
  if (const auto* trial = std::get_if<BeginTrial>(&command))
    return trial->run.id + " " + trial->run.job.resolved->dump();
  if (const auto* changed = std::get_if<ChangeJob>(&command)) return changed->run + " " + changed->job.dump();
  return std::nullopt;
}

/// As it is stored: what it says before that it says unasked.
void Cluster::note_stop(const Store& store) {
  const auto* stop = std::get_if<core::coordinator_event::StopRequested>(&store.event);
  if (stop == nullptr || !submitted_.contains(stop->run)) return;
  if (const auto experiment = experiments_.find(stop->run); experiment != experiments_.end())
    experiment->second.on_stop_requested();
}

/// Of a trial, when its experiment cannot want it any more.
void Cluster::check_forgotten(const RunId& run) {
  if (const auto experiment = experiments_.find(run); experiment != experiments_.end()) {
    if (!experiment->second.finished()) violated("{} is forgotten before it has finished", run);
    return;
  }
  RunState& state = runs_.at(run);
  if (!state.check.finished()) violated("{} is forgotten before it has finished", run);
  const ExperimentCheck* parent = parent_of(state);
  if (parent != nullptr && !parent->finished() && parent->may_go_on(run))
    violated("{} is forgotten, and its experiment may want it to go on", run);
}

}  // namespace sgd::sim
