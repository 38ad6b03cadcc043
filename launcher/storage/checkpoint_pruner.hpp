#pragma once
// Takes away the checkpoints that do not count any more, on a thread of its own: to free the pages of large files takes
// tens of milliseconds, in which a failure would not be noticed. Where there is no room for a thread, what waits is
// taken away by the next one that there is room for, or at the end. Those that a resume has put aside go as the run
// passes them (ahead_checkpoints.hpp).

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace sgd::storage {

/// What of `names`, the entries of a checkpoints/ folder, is to go when `kept` are the names that count: checkpoints
/// older than the newest of them that is among `names`, and what was left half written before it. One that is newer may
/// yet count, and one that counts and is not here yet makes none before it superfluous.
[[nodiscard]] std::vector<std::string> superseded(const std::vector<std::string>& names,
                                                  const std::vector<std::string>& kept);

class CheckpointPruner {
 public:
  CheckpointPruner() = default;
  /// Ends when the last order is carried out.
  ~CheckpointPruner();
  CheckpointPruner(const CheckpointPruner&) = delete;
  CheckpointPruner& operator=(const CheckpointPruner&) = delete;

  /// Checkpoints in `folder`; an order that waits is replaced. What cannot be removed stays.
  void keep(const std::string& folder, std::vector<std::string> names);

 private:
  struct Order {
    std::string folder;
    std::vector<std::string> names;
  };
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Order> order_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace sgd::storage
