#pragma once
// One communicator of NCCL, from its id to its abort. No call waits inside of NCCL: each begins something, and who
// waits polls, so that an abort, an error of a peer and a deadline all end the wait.
//
//   id of rank 0 ─► begin() ─► is_ready() … ─► all_reduce() ─► is_ready() … ─► abort()
//
// A communicator is always given up by ncclCommAbort: whatever it has promised was waited for before, and its orderly
// end would wait for all peers. What runs on the device ends at once then; NCCL's own threads take a second more,
// beside the caller, which ends by _exit() in that time or goes on.

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "worker/collective/nccl_api.hpp"

namespace sgd::worker {

class NcclGroup {
 public:
  /// An id for a new group, as printable text for the exchange. Throws CollectiveError.
  [[nodiscard]] static std::string make_id(const NcclApi& api);

  /// `enter`: makes the group's device the current one of a thread; it may be called when this object is gone.
  NcclGroup(const NcclApi& api, int rank, int size, std::function<void()> enter = {})
      : api_(api), rank_(rank), size_(size), enter_(std::move(enter)) {}
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup() { abort(); }

  /// Begins to connect to the others; `id` is what make_id() has given rank 0. Throws CollectiveError, as do the next
  /// two; CollectiveSetupError where NCCL refuses what it is asked for, as it would on each attempt: two ranks on one
  /// device, ranks with different versions of it.
  void begin(const std::string& id);
  /// Begins the sum of `count` floats over all ranks, in place, in the order of `stream`.
  void all_reduce(float* values, std::size_t count, void* stream);
  /// Whether what was begun is done, as far as the host goes. Throws with NCCL's words when the group has failed or was
  /// aborted.
  [[nodiscard]] bool is_ready();

  /// From any thread, any time: whatever NCCL does ends. Idempotent.
  void abort() noexcept;
  /// Whether NCCL has given back all that the aborted group had.
  [[nodiscard]] bool has_left() const { return *has_left_; }

 private:
  void leave();
  void check(int result, const char* function);
  [[nodiscard]] nccl::Communicator live() const;

  const NcclApi& api_;
  int rank_;
  int size_;
  std::function<void()> enter_;
  std::timed_mutex mutex_;  // Around each call: abort() frees what the others use.
  nccl::Communicator communicator_ = nullptr;
  std::atomic<bool> aborted_{false};
  std::shared_ptr<std::atomic<bool>> has_left_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace sgd::worker
