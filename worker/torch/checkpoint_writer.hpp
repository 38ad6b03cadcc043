#pragma once
// Writes checkpoints behind training. save() copies the tensors into a staging buffer and
// returns; a thread writes the files under a temporary name, waits until they are on disk, renames
// the directory, and tells: whoever is told removes the oldest ones. One at a time.
//
// A directory that has its final name is whole. A failed write (a full disk) is told, and nothing else:
// the checkpoint before stays, and training goes on. A run whose last state is not on disk is no success.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "common/messages/link.hpp"
#include "worker/core/aligned_floats.hpp"
#include "worker/core/safetensors.hpp"
#include "worker/torch/checkpoint_state.hpp"
#include "worker/torch/state_parts.hpp"

namespace sgd::worker {

struct CheckpointTarget {
  std::string run_dir;  ///< Its checkpoints/ is made when it is missing.
  Generation generation = 0;
};

class CheckpointWriter {
 public:
  /// Called by the writer's thread: CheckpointSaved after each rename, CheckpointFailed where none was made.
  using Tell = std::function<void(const link::FromWorker&)>;

  CheckpointWriter(CheckpointTarget target, Tell tell);
  /// Waits for a write in progress.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Has the thread make the staging buffer for checkpoints of these, all its pages there, so that the first save is as
  /// short as every other. Busy until then; nothing to do once a save has been made.
  void prepare(const StateTensors& tensors);

  [[nodiscard]] bool busy() const;
  /// Waits until nothing is being written.
  [[nodiscard]] Status wait(Duration deadline);
  /// Whether the last save that has ended is on disk. False before the first.
  [[nodiscard]] bool last_is_on_disk() const;

  /// The folder of the newest that is on disk, made by this object; empty: there is none.
  [[nodiscard]] std::string newest() const;

  /// A save was left out because the one before was still being written: counted in the next one's message.
  void note_skipped() { ++skipped_; }

  /// Must not be busy. `began` is when training was held for this checkpoint, and `held` for how long, where it is not
  /// until now. What operators keep of their own is not
  /// copied: `state` holds its memory.
  void save(TrainingState state, const StateTensors& tensors, TimePoint began, std::optional<Duration> held = {});

 private:
  /// What the thread works on; written by save() while it rests.
  struct Job {
    TrainingState state;
    double stall_s = 0;
    std::int64_t skipped = 0;
    TimePoint copied;
    StateTensors tensors;  // Its values are those of the staging buffer, its buffers' bytes lie in buffer_bytes.
    std::vector<std::vector<std::byte>> buffer_bytes;
  };

  void run();
  void make_staging(std::size_t floats);
  [[nodiscard]] bool write_job();
  [[nodiscard]] bool write_checkpoint();
  void give_up(const std::string& reason);
  [[nodiscard]] Result<std::int64_t> write_files(const std::string& dir);
  /// The name that `part` has got in `root`.
  [[nodiscard]] Result<std::string> publish(const std::string& part, const std::string& root);
  [[nodiscard]] std::vector<TensorBytes> model_tensors() const;
  [[nodiscard]] std::vector<TensorBytes> optimizer_tensors() const;
  [[nodiscard]] std::vector<TensorBytes> rank_tensors() const;

  CheckpointTarget target_;
  Tell tell_;
  AlignedFloats staging_;
  Job job_;
  std::int64_t skipped_ = 0;  // Since the last save; the training thread's.

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool busy_ = false;               // The thread owns job_ and staging_.
  std::size_t prepare_floats_ = 0;  // The staging buffer to make; 0: none.
  bool last_on_disk_ = false;
  std::string newest_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace sgd::worker
