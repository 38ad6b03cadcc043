#pragma once
// The one interface between training and communication. An implementation moves bytes
// between the ranks of one generation; who is in it was decided by the launcher.
//
// All members but abort() are called by the training thread, by every rank, in the same order
// and with equal sizes. Each is bounded: it ends by completing, or by throwing CollectiveError
// when a peer is gone, the stall time-out has passed, or abort() was called, or by throwing
// CollectiveMismatch on every rank when they did not call the same. After a throw the object can
// only be destroyed.

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "worker/collective/call.hpp"

namespace sgd::worker {

/// A collective did not complete. Ends the process with worker_exit::kPeerLost: secondary, never the cause.
class CollectiveError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The ranks called different collectives, or parts of the gradients: what the program that trains does wrong, so the
/// process ends with worker_exit::kUserError, and nothing is tried again. Names operations and ranks.
class CollectiveMismatch : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Bits of the control word that every gradient collective carries; the result is the OR over ranks.
namespace control {
inline constexpr std::uint32_t kStop = 1u << 0;              ///< Stop at this step, with a checkpoint.
inline constexpr std::uint32_t kCheckpoint = 1u << 1;        ///< Save after this step.
inline constexpr std::uint32_t kNan = 1u << 2;               ///< The loss of some rank is not finite.
inline constexpr std::uint32_t kStopAtEpoch = 1u << 3;       ///< Leave at the next epoch boundary.
inline constexpr std::uint32_t kMemory = 1u << 4;            ///< Copy the state into memory after this step.
inline constexpr std::uint32_t kStopAtCheckpoint = 1u << 5;  ///< Leave when the next checkpoint is on disk.
inline constexpr std::uint32_t kInfinite = 1u << 6;          ///< Set by all_reduce: some sum is not finite.
inline constexpr std::uint32_t kUsedChanged = 1u << 7;  ///< Other parameters have gradients than in the step before.
inline constexpr std::uint32_t kPending = 1u << 8;      ///< Some rank holds gradients that no update has taken.
}  // namespace control

class Collective {
 public:
  virtual ~Collective() = default;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;

  /// This rank's gradient buffer, `count` floats, 64-byte aligned: the operand of all_reduce. It lies in
  /// shared memory where the implementation can thereby avoid copies, or on a device, where this process can neither
  /// read nor write it. Sized at construction.
  [[nodiscard]] virtual std::span<float> gradients() = 0;

  /// Sums gradients() over all ranks in rank order (on devices: in one order), in place, bit-equal on every rank, and
  /// ORs `control_word`. With control::kInfinite if some sum is infinite or NaN, on every rank.
  [[nodiscard]] std::uint32_t all_reduce(std::uint32_t control_word) {
    return all_reduce(control_word, 0, gradients().size());
  }
  /// The same of `count` gradients from `offset`, with equal bits; the others stay as they are.
  [[nodiscard]] virtual std::uint32_t all_reduce(std::uint32_t control_word, std::size_t offset, std::size_t count) = 0;

  /// ORs the control word without data: validation, and loops without steps, once per batch.
  [[nodiscard]] std::uint32_t agree(std::uint32_t control_word) { return agree(control_word, Call{Operation::kAgree}); }
  /// The same for a `call` whose data go another way; all ranks must come for the same.
  [[nodiscard]] virtual std::uint32_t agree(std::uint32_t control_word, const Call& call) = 0;

  /// Copies `bytes` of rank `root` into `bytes` of every other rank.
  virtual void broadcast(std::span<std::byte> bytes, int root) = 0;

  /// Every rank's bytes, in rank order; sizes may differ between ranks.
  [[nodiscard]] virtual std::vector<std::string> all_gather(const std::string& bytes) = 0;

  /// Returns when every rank has called it.
  virtual void barrier() = 0;

  /// From any thread: every call in progress or later throws within 10 ms. Idempotent.
  virtual void abort() noexcept = 0;
};

}  // namespace sgd::worker
