#include "worker/torch/saver.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "worker/torch/clock.hpp"
#include "worker/torch/errors.hpp"
#include "worker/torch/operator_save.hpp"
#include "worker/torch/state_mirror.hpp"

namespace sgd::worker {

Saver::Saver(const SaverSetup& setup) : setup_(setup), last_save_(time_now()) {
  if (setup_.assignment.rank != 0) return;
  CheckpointTarget target;
  target.run_dir = setup_.assignment.run_dir;
  target.generation = setup_.assignment.generation;
  writer_ = std::make_unique<CheckpointWriter>(std::move(target),
                                               [this](const link::FromWorker& told) { (void)setup_.link.send(told); });
}

void Saver::begin(Restored& restored, int memory_fd) {
  if (memory_fd >= 0 && setup_.assignment.local_rank == 0) {
    memory_ = MemorySaver::make(memory_fd, setup_.assignment.generation, state_parts(setup_.source.tensors()).layout,
                                std::move(restored.region));
    if (memory_ && restored.slot) memory_->adopt(*restored.slot);
    set_live_step(setup_.source.point().step);
  }
  // The state before the first epoch, or the one just read from disk, counts as saved; one from memory does not.
  if (restored.source != RestoreSource::kMemory) saved_ = setup_.source.point();
}

void Saver::prepare() {
  if (writer_ && saves_by_itself()) writer_->prepare(setup_.source.tensors());
  if (memory_) memory_->start();
}

void Saver::set_live_step(std::int64_t step) {
  if (memory_) memory_->set_live_step(step);
}

bool Saver::saves_by_itself() const {
  return setup_.job.checkpoint.every != job::CheckpointPolicy::Every::kNever;
}

bool Saver::is_due(std::int64_t step) const {
  const job::CheckpointPolicy& policy = setup_.job.checkpoint;
  return policy.every == job::CheckpointPolicy::Every::kSteps && step % policy.steps == 0;
}

std::uint32_t Saver::due_bits() const {
  if (setup_.assignment.rank != 0) return 0;
  std::uint32_t word = 0;
  const TimePoint time = time_now();
  const job::CheckpointPolicy& policy = setup_.job.checkpoint;
  if (policy.every == job::CheckpointPolicy::Every::kSeconds && time - last_save_ >= from_seconds(policy.seconds) &&
      !writer_->busy() && !background_task_.is_busy())
    word |= control::kCheckpoint;
  if (!background_task_.is_busy() && memory_ && memory_->due(time)) word |= control::kMemory;
  return word;
}

void Saver::save(unsigned targets) {
  if (is_saved() && (targets & kAlways) == 0) targets &= ~kDisk;
  if ((targets & (kDisk | kMemory)) == 0) return;
  const TimePoint began = time_now();
  const Progress::Phase phase = setup_.link.progress().phase.exchange(Progress::Phase::kSaving);
  std::vector<RankMessage> told = tell_all(targets);
  targets = possible(targets, told);
  const bool writes = writer_ && (targets & kDisk) != 0;
  const bool copies = memory_ && (targets & kMemory) != 0;
  if (writes || copies) {
    settle();
    Taken taken{
        setup_.source.point(), setup_.source.state(std::move(told)), setup_.source.tensors(), writes, copies, began,
        std::nullopt};
    if (StateMirror* mirror = setup_.source.mirror()) {
      mirror->take();
      taken.held = time_now() - began;
      const auto shared = std::make_shared<Taken>(std::move(taken));
      background_task_.run([this, mirror, shared] {
        mirror->wait_taken();
        put_away(std::move(*shared));
      });
    } else {
      put_away(std::move(taken));
    }
  }
  if ((targets & kDisk) != 0) {
    saved_ = setup_.source.point();
    last_save_ = time_now();
  }
  setup_.link.progress().phase = phase;
}

void Saver::put_away(Taken taken) {
  if (taken.copies) {
    const std::string head = packed_head(taken.state);
    memory_->commit(taken.point, packed_pieces(head, taken.state), state_parts(taken.tensors), taken.began, taken.held);
  }
  if (!taken.writes) return;
  wait_for_writer();
  writer_->save(std::move(taken.state), taken.tensors, taken.began, taken.held);
}

/// What every rank has told, by rank.
std::vector<RankMessage> Saver::tell_all(unsigned targets) {
  RankMessage own = setup_.source.own_message();
  own.has_unsent = setup_.link.has_unsent();
  own.is_busy = writer_ && (targets & kIfFree) != 0 && (writer_->busy() || background_task_.is_busy());
  const std::string text = encode(own);
  check_rank_bytes(setup_.assignment.rank, text.size());
  std::vector<RankMessage> told;
  for (std::string& one : setup_.collective.all_gather(text)) {
    Result<RankMessage> decoded = decode_rank_message(std::move(one));
    if (!decoded) throw std::runtime_error("a rank's state for a checkpoint: " + decoded.error().message);
    told.push_back(std::move(decoded).value());
  }
  return told;
}

/// What of `targets` is done: all ranks decide alike from what all have told. A copy may only be ahead of reports that
/// have reached the agent, since a report that dies with its rank would be missed for ever.
unsigned Saver::possible(unsigned targets, const std::vector<RankMessage>& told) {
  const bool is_busy = std::any_of(told.begin(), told.end(), [](const RankMessage& one) { return one.is_busy; });
  const bool has_unsent = std::any_of(told.begin(), told.end(), [](const RankMessage& one) { return one.has_unsent; });
  if (has_unsent) targets &= ~kMemory;
  const bool is_skipped = (targets & kDisk) != 0 && (targets & kIfFree) != 0 && (is_busy || has_unsent);
  if (is_skipped) targets &= ~kDisk;
  if (is_skipped && writer_) writer_->note_skipped();
  return targets;
}

void Saver::wait_for_writer() {
  if (Status free = writer_->wait(setup_.job.heartbeat.stall_timeout); !free)
    throw EnvironmentError(free.error().message);
}

bool Saver::on_disk() {
  settle();
  std::uint32_t failed = 0;
  if (writer_) {
    wait_for_writer();
    if (!writer_->last_is_on_disk()) failed = control::kCheckpoint;
  }
  return setup_.collective.agree(failed) == 0;
}

void Saver::finish() {
  settle();
  if (!writer_) return;
  setup_.link.progress().phase = Progress::Phase::kSaving;
  wait_for_writer();
}

}  // namespace sgd::worker
