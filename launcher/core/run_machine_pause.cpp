// How a run that is one of many gives its place up, and goes on later: from where it was, or from where another one is,
// or in another life after its end.

#include <algorithm>
#include <utility>

#include "common/base/assert.hpp"
#include "common/json/lenient.hpp"
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
  takes_state_ = false;
  checkpoints_ = {told(definition_.job.resume_from)};
  arrivals_.clear();
  come_.clear();
  note_here(checkpoints_.front());
  compared_step_ = step_of(checkpoints_.front());
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
  come_.clear();
  note_here(told(from));
  compared_step_ = step_of(from);
  outcome_.checkpoint = told(from);
  outcome_.best_checkpoints = nullptr;
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
  arrivals_ = former.arrivals_;  // Its newest checkpoints may still be on their way,
  come_ = former.come_;          // so that what it goes on from has not come for that.
  compared_step_ = former.compared_step_;
}

// ---- what other trials copy of it ----

/// What counts no more, and what nobody has claimed.
void RunMachine::forget_come() {
  const auto counts = [this](const std::string& path) {
    if (std::find(checkpoints_.begin(), checkpoints_.end(), path) != checkpoints_.end()) return true;
    if (is_stored(path, arrivals_)) return true;
    const auto is_it = [&](const std::string& past) { return told(past) == path; };
    return definition_.past &&
           std::any_of(definition_.past->checkpoints.begin(), definition_.past->checkpoints.end(), is_it);
  };
  std::erase_if(come_, [&](const std::string& path) { return !counts(path); });
}

/// `kept`, and that of the state which was compared.
std::vector<std::string> RunMachine::with_compared(const std::vector<std::string>& kept) const {
  if (!compared_step_) return kept;
  std::vector<std::string> paths;
  for (const std::string& path : checkpoints_)
    if (step_of(path) == compared_step_ || std::find(kept.begin(), kept.end(), path) != kept.end())
      paths.push_back(path);
  return paths;
}

/// The seed decides who copies whom; how far the donor has come since is chance.
std::string RunMachine::checkpoint_to_copy(std::int64_t step) const {
  const auto is_it = [&](const std::string& path) {
    return step_of(path) == step && (!files_travel_ || come_.contains(path));
  };
  for (auto path = checkpoints_.rbegin(); path != checkpoints_.rend(); ++path)
    if (is_it(*path)) return whole(*path);
  // Of one that has ended these are kept, too.
  if (finished() && definition_.past)
    for (const std::string& path : definition_.past->checkpoints)
      if (is_it(told(path))) return path;
  return newest_checkpoint();
}

/// That of one that has ended is kept, too.
std::string RunMachine::newest_checkpoint() const {
  return whole(files_travel_ ? newest_stored(arrivals_) : outcome_.checkpoint);
}

ScoredCheckpoint RunMachine::best_checkpoint() const {
  if (!outcome_.best_checkpoints.is_array() || outcome_.best_checkpoints.empty()) return {};
  const nlohmann::ordered_json& best = outcome_.best_checkpoints.front();
  const std::string path = read_or(best, "path", "");
  const bool is_there = !files_travel_ || come_.contains(path);
  return {is_there ? whole(path) : "", read_or(best, "value", 0.0)};
}

/// As the disk knows it.
std::string RunMachine::whole(const std::string& checkpoint) const {
  return checkpoint.empty() || checkpoint.starts_with('/') ? checkpoint : definition_.run_dir + "/" + checkpoint;
}

}  // namespace sgd::core
