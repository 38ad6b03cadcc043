#include "test/sim/group.hpp"

#include <algorithm>

#include "common/exit_codes.hpp"
#include "test/sim/cluster.hpp"
#include "test/sim/experiment_plan.hpp"
#include "test/sim/keeper.hpp"
#include "test/sim/run_state.hpp"
#include "test/sim/worker.hpp"

namespace sgd::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Every = job::CheckpointPolicy::Every;

Group::Group(World& world, RunState& run, Generation generation, int world_size)
    : world_(world), run_(run), generation_(generation), members_(static_cast<std::size_t>(world_size), nullptr) {}

template <class Next>
void Group::later(Duration delay, Next next) {
  world_.queue.after(delay, [this, next] {
    if (broken_) return;
    if (stands_still()) return look_for_waiting();
    next();
  });
}

bool Group::stands_still() const {
  return std::any_of(members_.begin(), members_.end(), [](const Worker* member) { return member->holds_up(); });
}

std::int64_t Group::samples() const {
  return point_.validating ? run_.plan.validation_samples : run_.plan.train_samples;
}

bool Group::saves_by_itself() const {
  return run_.plan.definition.job.checkpoint.every != Every::kNever;
}

// ---- who is in it ----

void Group::join(Worker& worker) {
  members_[static_cast<std::size_t>(worker.rank())] = &worker;
  ++joined_;
  worker.progress().waiting = true;
  if (broken_) return worker.exit_soon(worker_exit::kPeerLost, milliseconds(50));
  if (joined_ < static_cast<int>(members_.size())) return;
  later(world_.chance.between(milliseconds(2), milliseconds(200)), [this] { restore(); });
}

bool Group::is_over() const {
  return std::none_of(members_.begin(), members_.end(),
                      [](const Worker* member) { return member != nullptr && member->alive(); });
}

void Group::look_for_waiting() {
  if (joined_ < static_cast<int>(members_.size()) || !stands_still()) return;
  for (Worker* member : members_) member->progress().waiting = !member->stalled();
}

void Group::on_end(Worker& worker) {
  if (writing_ && &worker == leader()) {
    writing_ = false;
    // Killed between the rename and the message, at worst: whole on disk, and nobody was told.
    if (world_.chance.with(0.3)) (void)put_on_disk(in_writing_);
  }
  if (broken_ || past_barrier_) return;
  broken_ = true;
  for (Worker* member : members_) {
    if (member == nullptr || member == &worker) continue;
    member->progress().waiting = true;
    if (world_.chance.with(0.1)) continue;  // Hangs.
    const Duration delay = world_.chance.with(0.9) ? world_.chance.between(milliseconds(1), milliseconds(250))
                                                   : world_.chance.between(milliseconds(250), seconds(4));
    member->exit_soon(worker_exit::kPeerLost, delay);
  }
}

// ---- restoring ----

std::vector<worker::MemoryOffer> Group::offers() {
  std::vector<worker::MemoryOffer> offers;
  if (!run_.plan.definition.job.checkpoint.memory) return offers;
  for (Worker* member : members_) {
    if (!member->leads_node()) continue;
    if (const auto slot = member->keeper().memory().newest())
      offers.push_back({member->rank(), member->assignment().node_rank, *slot});
  }
  return offers;
}

Group::Restored Group::choose_disk(const std::optional<worker::MemoryOffer>& memory) {
  for (const std::string& path : leader()->assignment().resume_from) {
    const Saved* saved = run_.disk.find(path);
    if (saved != nullptr && !leader()->node().cluster().is_within_reach(*saved)) saved = nullptr;
    if (saved == nullptr || saved->is_damaged) {
      leader()->say(link::CheckpointRejected{path, saved == nullptr ? "it is not there" : "it is damaged"});
      continue;
    }
    if (worker::choose(memory, worker::DiskOffer{saved->generation, saved->point.step}) ==
        worker::RestoreSource::kMemory)
      break;
    return {worker::RestoreSource::kDisk, path};
  }
  return {worker::choose(memory, std::nullopt), ""};
}

void Group::restore() {
  const std::vector<worker::MemoryOffer> offered = offers();
  const std::optional<worker::MemoryOffer> newest = worker::newest(offered);
  const Restored restored = choose_disk(newest);
  if (restored.source == worker::RestoreSource::kDisk) point_ = run_.disk.find(restored.path)->point;
  if (restored.source == worker::RestoreSource::kMemory) {
    point_ = members_[static_cast<std::size_t>(newest->rank)]->keeper().memory().point(newest->slot.index);
    for (const worker::MemoryOffer& offer : offered)
      if (worker::same_state(offer, *newest))
        members_[static_cast<std::size_t>(offer.rank)]->keeper().memory().restamp(offer.slot.index, generation_);
  }
  point_.divide_anew(static_cast<int>(members_.size()));
  if (restored.source != worker::RestoreSource::kMemory) saved_ = point_.memory_point();
  last_save_ = world_.queue.now();
  announce(restored);
}

void Group::announce(const Restored& restored) {
  world_.say("{}: generation {} goes on from {} at step {}, epoch {}, {} of {}", run_.plan.definition.id, generation_,
             worker::name_of(restored.source), point_.step, point_.epoch, point_.consumed, samples());
  link::Ready ready;
  ready.step = point_.step;
  ready.epoch = point_.epoch;
  ready.source = worker::name_of(restored.source);
  ready.path = restored.path;
  for (Worker* member : members_) member->say(ready);
  publish("train");
  if (point_.epoch > run_.plan.definition.job.training->epochs) return finish(worker_exit::kDone);
  plan_step();
}

void Group::publish(const char* phase) {
  for (Worker* member : members_) {
    link::Heartbeat& progress = member->progress();
    progress.step = point_.step;
    progress.epoch = point_.epoch;
    progress.phase = phase;
    progress.waiting = false;
    ++progress.samples;
  }
}

// ---- steps ----

void Group::plan_step() {
  // Training is held while a checkpoint waits for the one before it.
  const Duration held = std::max(Duration{0}, writer_free_at_ - run_.plan.write_time - world_.queue.now());
  later(held + world_.chance.between(run_.plan.step_time * 8 / 10, run_.plan.step_time * 12 / 10), [this] { step(); });
}

void Group::step() {
  const job::JobSpec& job = run_.plan.definition.job;
  if (!point_.advance(*job.training, samples())) return end_phase();
  publish(point_.validating ? "validate" : "train");
  if (run_.plan.result_bytes > 0)
    for (Worker* member : members_)
      member->say(link::ResultMade{std::string(static_cast<std::size_t>(run_.plan.result_bytes), 'x')});
  if (!point_.validating) {
    for (Worker* member : members_)
      if (!member->has_said_first_step()) member->say_first_step(point_.step);
    if (!has_stepped_)
      later(world_.chance.between(milliseconds(20), milliseconds(500)), [this] { memory_ready_ = true; });
    has_stepped_ = true;
  }
  // A save by steps is left out while the one before it is being written.
  const bool steps_due = !point_.validating && job.checkpoint.every == Every::kSteps && !writing_ &&
                         point_.step % job.checkpoint.steps == 0;
  const bool time_due = job.checkpoint.every == Every::kSeconds && !writing_ &&
                        world_.queue.now() - last_save_ >= from_seconds(job.checkpoint.seconds);
  if (!act(steps_due || time_due, false)) return;
  if (point_.phase_is_done(*job.training, samples())) return end_phase();
  plan_step();
}

void Group::end_phase() {
  report();
  run_.check.on_phase_done(generation_, point_);
  const bool was_validating = point_.validating;
  point_.next_phase();
  publish(point_.validating ? "validate" : "train");
  if (was_validating) return end_epoch();
  plan_step();
}

void Group::end_epoch() {
  const job::JobSpec& job = run_.plan.definition.job;
  if (point_.epoch > job.training->epochs) {
    if (saves_by_itself()) save_to_disk();
    return finish(worker_exit::kDone);
  }
  bool leave = false;
  for (const Worker* member : members_)
    leave = leave || (member->wants_leave() && (!member->leaves_at_checkpoint() || !saves_by_itself()));
  if (act(job.checkpoint.every == Every::kEpoch, leave)) plan_step();
}

void Group::report() {
  for (Worker* member : members_) {
    link::Report report;
    report.key.epoch = point_.epoch;
    report.key.phase = point_.validating ? "validate" : "train";
    report.step = point_.step;
    report.metrics = {{"num_samples", point_.records[static_cast<std::size_t>(member->rank())]},
                      {"train_loss", static_cast<double>(generation_)}};
    if (run_.plan.definition.parent && point_.validating)
      report.metrics["score"] = score_of(run_.plan.definition.id, point_.epoch, generation_);
    member->say(std::move(report));
  }
}

bool Group::act(bool checkpoint, bool leave) {
  bool stop = false;
  for (const Worker* member : members_) {
    stop = stop || member->wants_stop();
    leave = leave || (member->wants_leave() && member->leaves_at_checkpoint() && checkpoint);
  }
  checkpoint = checkpoint || leave || stop;
  const bool memory_due = memory_ready_ && world_.queue.now() >= memory_due_;
  if (memory_due || (checkpoint && (leave || stop))) save_to_memory();
  if (checkpoint) save_to_disk();
  if (stop) {
    finish(worker_exit::kStopped);
    return false;
  }
  if (!leave) return true;
  leave_if_on_disk();
  return false;
}

// ---- checkpoints ----

void Group::save_to_memory() {
  if (!memory_ready_ || !run_.plan.definition.job.checkpoint.memory) return;
  memory_due_ = world_.queue.now() + world_.chance.spread_between(milliseconds(20), milliseconds(500));
  for (Worker* member : members_)
    if (member->leads_node()) member->keeper().memory().commit(generation_, point_);
}

/// One at a time: a checkpoint waits for the one before it, and training with it.
void Group::save_to_disk() {
  if (saved_ == point_.memory_point()) return;
  saved_ = point_.memory_point();
  last_save_ = world_.queue.now();
  writer_free_at_ = std::max(writer_free_at_, world_.queue.now()) + run_.plan.write_time;
  world_.queue.at(writer_free_at_ - run_.plan.write_time, [this, point = point_] {
    if (!leader()->alive()) return;
    writing_ = true;
    in_writing_ = point;
  });
  world_.queue.at(writer_free_at_, [this, point = point_] {
    if (leader()->alive() && !leader()->frozen()) write_done(point);
  });
}

void Group::write_done(const Point& point) {
  writing_ = false;
  last_on_disk_ = world_.calm || !world_.chance.with(world_.plan.fail_write);
  if (!last_on_disk_) return world_.count(Fault::kFailWrite);
  link::CheckpointSaved saved;
  saved.path = put_on_disk(point);
  saved.step = point.step;
  saved.epoch = point.epoch - 1;
  leader()->say(saved);
}

std::string Group::put_on_disk(const Point& point) {
  std::string path = run_.disk.save(generation_, point);
  if (world_.plan.settings.files_travel) leader()->node().cluster().send_checkpoint(run_, path, leader()->node());
  return path;
}

void Group::leave_if_on_disk() {
  const Duration writing = std::max(Duration{0}, writer_free_at_ - world_.queue.now());
  later(writing + milliseconds(1), [this] {
    if (last_on_disk_) return finish(worker_exit::kStopped);
    plan_step();
  });
}

void Group::finish(int exit_code) {
  publish("saving");
  const Duration writing = std::max(Duration{0}, writer_free_at_ - world_.queue.now());
  later(writing + milliseconds(1), [this, exit_code] {
    past_barrier_ = true;
    for (Worker* member : members_)
      member->exit_soon(exit_code, world_.chance.between(milliseconds(1), milliseconds(60)));
  });
}

}  // namespace sgd::sim
