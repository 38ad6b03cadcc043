#pragma once
// Where a phase's batches come from: passes over the data of a split, one behind the other, as one rank reads them.
// What has numbers is in indexed_batches.hpp; streams, whose end nobody knows before, in stream_batches.hpp.

#include <cstdint>

#include "sgd/model.hpp"

namespace sgd::worker {

class PassBatches {
 public:
  enum class Next {
    kBatch,  ///< take() gives it.
    kIdle,   ///< This rank's part of the pass is over, but not that of others: a turn without a batch.
    kEnd,    ///< Of the pass, on every rank.
  };

  virtual ~PassBatches() = default;

  /// What this turn is. Collective for a stream. `wants_last`: is_last() will be asked, so more may have to be read.
  [[nodiscard]] virtual Next look(bool wants_last) = 0;
  /// After look(true) has said kBatch: whether no batch of this rank follows it in the pass.
  [[nodiscard]] virtual bool is_last() const = 0;
  /// The batch, once. Throws what its making has thrown.
  [[nodiscard]] virtual Batch take() = 0;
  /// The turn is over: its batch is done on every rank.
  virtual void advance() = 0;

  [[nodiscard]] virtual int pass() const = 0;
  /// The place behind the turns that are over, equal on every rank; 0 at the pass's beginning.
  [[nodiscard]] virtual std::int64_t consumed() const = 0;
  /// Whether it is known that the pass is over.
  [[nodiscard]] virtual bool is_pass_done() const = 0;
  virtual void begin_pass(int pass) = 0;
};

}  // namespace sgd::worker
