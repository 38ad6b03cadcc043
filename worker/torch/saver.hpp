#pragma once
// When the state is saved and where: on disk by rank 0's writer, in memory on the leader of each node. Nothing here
// knows what the state is.
//
//   agreed bits of the control word ─► save(targets) ─► all ranks tell what they keep ─► all decide alike ─► copies
//
// A device copies behind training: the state is taken at the safe point, in order with the device's work, and put away
// by a thread once it has come.

#include <memory>
#include <optional>
#include <vector>

#include "common/job/spec.hpp"
#include "common/messages/link.hpp"
#include "worker/collective/collective.hpp"
#include "worker/link/client.hpp"
#include "worker/torch/background_task.hpp"
#include "worker/torch/checkpoint_writer.hpp"
#include "worker/torch/memory_saver.hpp"
#include "worker/torch/rank_message.hpp"
#include "worker/torch/restorer.hpp"

namespace sgd::worker {

class StateMirror;

/// Where the state to be saved comes from.
class StateSource {
 public:
  virtual ~StateSource() = default;
  /// Of this rank: its record, and on rank 0 what is shared.
  [[nodiscard]] virtual RankMessage own_message() = 0;
  /// All but the tensors; `told` by all ranks, in their order.
  [[nodiscard]] virtual TrainingState state(std::vector<RankMessage> told) = 0;
  [[nodiscard]] virtual StateTensors tensors() = 0;
  /// What brings those tensors from a device; null: they are what training works on.
  [[nodiscard]] virtual StateMirror* mirror() { return nullptr; }
  /// Where training is: the step, and its place in the run.
  [[nodiscard]] virtual MemoryPoint point() const = 0;
};

struct SaverSetup {
  const job::JobSpec& job;
  const link::Assignment& assignment;
  LinkClient& link;
  Collective& collective;
  StateSource& source;
};

class Saver {
 public:
  /// Bits. kIfFree: not on disk when the save before is still being written (a slow disk never holds training).
  /// kAlways: on disk also where training is at the place of the last save.
  enum Target : unsigned { kDisk = 1, kMemory = 2, kIfFree = 4, kAlways = 8 };

  /// All outlives this object.
  explicit Saver(const SaverSetup& setup);

  /// After a restore: what it went on from counts as saved, unless it lay in memory. `memory_fd`: the node's memory
  /// checkpoint, or -1.
  void begin(Restored& restored, int memory_fd);
  /// Gets the memory that copies need, behind training. After the first step, which it would delay.
  void prepare();
  /// Where training is, for the next generation's count of what it does again.
  void set_live_step(std::int64_t step);

  /// Collective.
  void save(unsigned targets);
  /// Whether training is at the place of the last save on disk.
  [[nodiscard]] bool is_saved() const { return saved_ == setup_.source.point(); }
  /// Bits of the control word for what is due by time.
  [[nodiscard]] std::uint32_t due_bits() const;
  [[nodiscard]] bool saves_by_itself() const;
  /// Whether a step with this number is to be saved.
  [[nodiscard]] bool is_due(std::int64_t step) const;
  /// Collective: waits for the write of the last save; whether it is on disk, as all ranks agree.
  [[nodiscard]] bool on_disk();
  /// After on_disk(): the folder of the newest that this generation has written. Empty: there is none, or this is not
  /// rank 0.
  [[nodiscard]] std::string newest() const { return writer_ ? writer_->newest() : std::string(); }
  /// Until nothing is being written.
  void finish();
  /// Until what a device has given last lies where it is to: the mirror is free then.
  void settle() { background_task_.settle(); }

 private:
  [[nodiscard]] std::vector<RankMessage> tell_all(unsigned targets);
  [[nodiscard]] unsigned possible(unsigned targets, const std::vector<RankMessage>& told);
  void wait_for_writer();
  /// What is saved of a step, and how long training was held for it, where it is not until now.
  struct Taken {
    MemoryPoint point;
    TrainingState state;
    StateTensors tensors;
    bool writes = false;
    bool copies = false;
    TimePoint began;
    std::optional<Duration> held;
  };
  void put_away(Taken taken);

  SaverSetup setup_;
  std::unique_ptr<CheckpointWriter> writer_;  // On rank 0 only.
  std::unique_ptr<MemorySaver> memory_;       // On local rank 0, where there are memory checkpoints.
  MemoryPoint saved_{-1, 0, false, 0};        // Of the last save on disk, so that none is made twice.
  TimePoint last_save_;
  BackgroundTask background_task_;  // With a device: what becomes of the last copy. Ends before all that it uses.
};

}  // namespace sgd::worker
