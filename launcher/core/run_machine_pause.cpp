// How a run that is one of many gives its place up, and goes on later: from where it was, or from where another one is,
// or in another life after its end.

#include <utility>

#include "common/base/assert.hpp"
#include "launcher/core/run_machine.hpp"

namespace sgd::core {

void RunMachine::on_pause(TimePoint now, std::string reason, bool saves, CoordinatorCommands& out) {
  if (finished() || stop_ || is_paused_) return;
  is_paused_ = true;
  switch (phase_) {
    case RunPhase::kPlacing:
    case RunPhase::kWaiting:
      return note_paused(out);
    case RunPhase::kStarting:
    case RunPhase::kRunning:
      if (phase_ == RunPhase::kRunning && saves) return leave_at_once(std::move(reason), out);
      leave_ = Leave::kNow;
      resize_reason_ = std::move(reason);
      return begin_recovery(now, out);
    case RunPhase::kLeaving:
    case RunPhase::kRecovering:
      resize_reason_ = std::move(reason);
      return;  // On its way.
    case RunPhase::kStopping:
    case RunPhase::kClearing:
    case RunPhase::kFinished:
      return;
  }
}

/// No time-out runs while nobody wants it to run.
void RunMachine::note_paused(CoordinatorCommands& out) {
  wait_until_.reset();
  placeless_since_.reset();
  is_queued_ = false;
  record({{"event", "paused"}, {"generation", generation_}, {"reason", resize_reason_}}, out);
}

/// Its owner offers what is free after this event.
void RunMachine::on_resume() {
  if (!std::exchange(is_paused_, false)) return;
  if (phase_ != RunPhase::kWaiting) return;
  start_at_capacity_ = true;
  leave_ = Leave::kNo;  // Where it goes on is no move.
}

void RunMachine::on_clone(job::JobSpec job) {
  if (finished()) return clone_past(job.resume_from);
  SGD_ASSERT(is_paused_ &&
             (phase_ == RunPhase::kWaiting || phase_ == RunPhase::kPlacing));  // Else ranks would have it.
  definition_.job = std::move(job);
  checkpoints_ = {told(definition_.job.resume_from)};
  arrivals_.clear();
  note_here(checkpoints_.front());
  scores_.clear();
  choose_checkpoints();  // What it has saved itself is not its state any more,
  for (const NodeId& node : touched_) keepers_from_[node] = next_generation();  // nor what keepers have in memory.
  // What it reports next is newer than what its donor had reported by then, whatever it has reported itself.
  reducer_.forget_written();
  trained_ = {};
}

/// It has ended, and may go on.
void RunMachine::clone_past(const std::string& from) {
  arrivals_.clear();
  note_here(told(from));
  outcome_.checkpoint = told(from);
  if (!definition_.past) return;
  RunPast& past = *definition_.past;
  past.checkpoints = {from};
  past.written.reset();
  past.shape.clear();
  past.scores.clear();
}

void RunMachine::note_former(const RunState& former) {
  touched_ = former.touched_;
  for (const NodeId& node : touched_) keepers_from_[node] = first_generation_;
  desired_generation_ = former.desired_generation_;
  desired_uid_ = former.desired_uid_;
  arrivals_ = former.arrivals_;  // Its newest checkpoints may still be on their way.
}

std::string RunMachine::newest_checkpoint() const {
  // That of one that has ended is kept, too.
  const std::string path = files_travel_ ? newest_stored(arrivals_) : outcome_.checkpoint;
  if (path.empty() || path.starts_with('/')) return path;
  return definition_.run_dir + "/" + path;
}

}  // namespace sgd::core
