#pragma once
// What a generation goes on from: the newest memory checkpoint of any node, else the newest whole
// checkpoint on disk, else nothing. All ranks call it together and end with the same tensors.
//
//   leaders offer ───────────────────┐
//   rank 0: newest offer, or disk ───┴─► decision ─► memory: every node that holds it reads its own,
//             ▲                                      or its lowest rank broadcasts it to all
//             │                                   ─► disk: rank 0 reads and broadcasts; one that is not on its node
//             │                                      is fetched first, and all ranks hear how far that is
//             │                                   ─► fresh: rank 0 broadcasts what it initialized
//             └── damaged, found while it was read: discarded, and all begin anew
//
// A damaged checkpoint is reported and the next one is tried; a whole one of another model is the
// user's error. Changes nothing but the tensors.

#include <memory>
#include <optional>
#include <string>

#include "common/messages/link.hpp"
#include "worker/collective/collective.hpp"
#include "worker/core/restore_choice.hpp"
#include "worker/link/client.hpp"
#include "worker/torch/checkpoint_state.hpp"
#include "worker/torch/state_parts.hpp"

namespace sgd::worker {

class CheckpointReader;

/// What a restore works on; all of it outlives the restorer.
struct RestoreSetup {
  const link::Assignment& assignment;
  LinkClient& link;
  Collective& collective;
  StateTensors tensors;
  int memory_fd = -1;  ///< Of the node's memory checkpoint; -1: none is read.
};

struct Restored {
  RestoreSource source = RestoreSource::kFresh;
  std::string path;                          ///< With kDisk: the checkpoint's directory.
  std::optional<TrainingState> state;        ///< Nothing with kFresh.
  std::int64_t redone = -1;                  ///< As in link::Ready.
  std::unique_ptr<MemoryCheckpoint> region;  ///< This node's, when it was made for this model.
  std::optional<int> slot;                   ///< Of it, where it holds the restored state.
};

class Restorer {
 public:
  explicit Restorer(const RestoreSetup& setup);
  ~Restorer();

  /// Ends with all ranks restored.
  [[nodiscard]] Restored run();

 private:
  /// What rank 0 tells all.
  struct Decision {
    RestoreSource source = RestoreSource::kFresh;
    std::string path;
  };

  void offer_and_gather();
  /// Rank 0's; nothing while a checkpoint is fetched.
  [[nodiscard]] std::optional<Decision> decide();
  enum class Fetch { kOnItsWay, kHere, kMissing };
  [[nodiscard]] Fetch fetch(const std::string& path);
  [[nodiscard]] Decision agree_on_decision();
  /// False when it was damaged on any node: it is discarded then, and the tensors hold nothing of use.
  [[nodiscard]] bool read_memory(Restored& restored);
  [[nodiscard]] bool all_whole(const std::optional<MemoryOffer>& own, const std::string& damage);
  void share(Rank root, std::string text, Restored& restored);
  void reject(const std::string& path, const std::string& reason);
  [[nodiscard]] bool leads_node() const { return setup_.assignment.local_rank == 0; }

  RestoreSetup setup_;
  StateParts state_;
  std::unique_ptr<MemoryCheckpoint> region_;
  std::vector<MemoryOffer> offers_;           // Of all nodes.
  std::optional<std::int64_t> live_step_;     // The furthest of all nodes.
  bool was_damaged_ = false;                  // What the tensors began with is overwritten.
  std::size_t candidate_ = 0;                 // Of resume_from; those before it are rejected.
  bool is_fetching_ = false;                  // That one.
  std::unique_ptr<CheckpointReader> reader_;  // On rank 0, of the chosen checkpoint.
};

}  // namespace sgd::worker
