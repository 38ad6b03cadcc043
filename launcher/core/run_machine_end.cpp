// How a run ends: nothing of it is left on its nodes, its outcome is told, and little of it is kept.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/exit_codes.hpp"
#include "launcher/core/run_machine.hpp"
#include "launcher/core/stop_request.hpp"

namespace sgd::core {

using coordinator_command::FinishRun;

void RunMachine::end_run(TimePoint now, const char* state, int exit_code, std::string error, CoordinatorCommands& out) {
  outcome_.state = state;
  outcome_.exit_code = exit_code;
  outcome_.error = std::move(error);
  if (nodes_.empty()) return finish(now, out);
  begin_clearing(now, out);
}

void RunMachine::begin_clearing(TimePoint now, CoordinatorCommands& out) {
  const bool was_clearing = phase_ == RunPhase::kRecovering || phase_ == RunPhase::kWaiting;
  phase_ = RunPhase::kClearing;
  // A node that was told the end of its keeper, since the run was paused or the node leaves, has answered that, maybe,
  // and does not answer it once more: the run's end is another wish.
  if (newest_held_ > desired_generation_ || was_clearing)
    want_generation(now, std::max(newest_held_, desired_generation_));
  clear_none_but_lost();
  send_desired(cluster::Want::kGone, out);
  if (all_cleared()) finish(now, out);  // All its nodes are lost: nobody would answer.
}

/// Who asked for a model and has none, or an older one, is told that: it is no success, and no plain stop.
void RunMachine::judge_saving() {
  const bool had_time =
      outcome_.state == "succeeded" || (stop_ && !stop_->at_once && outcome_.state == state_of(*stop_));
  if (!unsaved_ || !had_time) return;
  // Whoever stops it after its last step ends nothing.
  const std::string until = outcome_.state == "succeeded" ? std::string("trained to the end") : outcome_.error;
  outcome_.error =
      fmt::format("{}, but the state of step {} could not be saved: {}", until, unsaved_->step, unsaved_->reason);
  outcome_.state = "failed";
  outcome_.exit_code = exit_code::kFailed;
}

void RunMachine::finish(TimePoint now, CoordinatorCommands& out) {
  SGD_ASSERT(!finished());  // Else its outcome would be told twice, and maybe differently.
  // A model that is there in part must never look like one that is whole.
  SGD_ASSERT(outcome_.state != "succeeded" ||
             (!ranks_.empty() &&
              std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank.second.done; })));
  phase_ = RunPhase::kFinished;
  judge_saving();
  outcome_.generation = generation_;
  outcome_.job_epochs = is_training() ? definition_.job.training->epochs : 0;
  outcome_.wall_s = (definition_.past ? definition_.past->wall_s : 0) + to_seconds(now - submitted_at_);
  record({{"event", "run_finished"},
          {"generation", generation_},
          {"state", outcome_.state},
          {"exit_code", outcome_.exit_code},
          {"failures", outcome_.failures}},
         out);
  // What was kept beside those that the job keeps goes when these have come. Nobody copies what is done.
  if (outcome_.state == "succeeded") compared_step_.reset();
  if (files_travel_ && !checkpoints_.empty())
    out.push_back(coordinator_command::KeepCheckpoints{
        definition_.id,
        with_compared(kept_checkpoints(scored(checkpoints_, scores_), definition_.job.checkpoint).paths)});
  out.push_back(FinishRun{definition_.id, outcome_});
  keep_little();
}

/// Of what another life of the run would go on from.
RunPast RunMachine::what_it_leaves() const {
  RunPast past;
  past.generation = std::max(generation_, desired_generation_);
  past.checkpoints = checkpoints_to_try();
  past.written = reducer_.state().written_;
  past.reports = reports_written_;
  past.epochs = outcome_.epochs;
  past.steps = std::max(steps_told_, definition_.past ? definition_.past->steps : 0);  // Heartbeats are not stored.
  past.failures = outcome_.failures;
  past.metrics = outcome_.metrics;
  past.wall_s = outcome_.wall_s;
  for (const NodePlace& place : (was_started_ ? placement_ : trained_).nodes) past.shape.push_back(place.ranks);
  past.is_same_job = true;
  past.scores = scores_;
  return past;
}

/// Up to CoordinatorSettings::finished_max of them are remembered, and anybody may end as many: what stays is what late
/// words of its nodes are answered with, and what is shown until its summary is written.
void RunMachine::keep_little() {
  const job::JobSpec& job = definition_.job;
  job::JobSpec little;
  little.name = job.name;
  little.num_workers = job.num_workers;
  little.per_worker = job.per_worker;
  if (job.training) little.training.emplace().epochs = job.training->epochs;
  RunState kept;
  kept.definition_.id = definition_.id;
  kept.definition_.parent = definition_.parent;
  // Its experiment may want it to go on.
  if (definition_.parent && (outcome_.state != "succeeded" || takes_state_)) kept.definition_.past = what_it_leaves();
  kept.definition_.job = std::move(little);
  kept.definition_.run_dir = definition_.run_dir;
  kept.definition_.placement_timeout = definition_.placement_timeout;
  kept.definition_.priority = definition_.priority;
  kept.definition_.owner = definition_.owner;
  kept.definition_.may_be_root = definition_.may_be_root;
  kept.definition_.is_of_admin = definition_.is_of_admin;
  kept.definition_.request_id = definition_.request_id;
  kept.submitted_at_ = submitted_at_;
  kept.phase_ = phase_;
  kept.generation_ = generation_;
  kept.generation_uid_ = generation_uid_;
  kept.desired_generation_ = desired_generation_;
  kept.desired_uid_ = desired_uid_;
  kept.newest_held_ = newest_held_;
  kept.first_generation_ = first_generation_;
  kept.placement_.world_size = placement_.world_size;
  kept.touched_ = std::move(touched_);
  // What other trials may copy of it.
  if (definition_.parent) {
    kept.files_travel_ = files_travel_;
    kept.arrivals_ = std::move(arrivals_);
    kept.compared_step_ = compared_step_;
    kept.come_ = std::move(come_);
  }
  kept.outcome_ = std::move(outcome_);
  static_cast<RunState&>(*this) = std::move(kept);
  const auto bytes_of = [](const auto& json) {
    return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).size();
  };
  if (bytes_of(outcome_.metrics) > kOutcomeBytesMax) outcome_.metrics = nullptr;
  if (bytes_of(outcome_.results) > kOutcomeBytesMax) outcome_.results = nullptr;
}

}  // namespace sgd::core
