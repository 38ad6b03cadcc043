#pragma once
// The agent of a rank that no launcher has started: a thread of the rank's own process at the other end of its link. It
// gives one assignment, answers exchanges with what it is given (there is one rank), writes what the rank says, and
// removes the oldest of its checkpoints.

#include <memory>
#include <string>
#include <thread>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "common/messages/link.hpp"
#include "worker/link/unique_fd.hpp"

namespace sgd::worker {

class StandaloneAgent {
 public:
  struct Setup {
    link::Assignment assignment;
    Duration grace{};          ///< For a stop by a signal.
    int checkpoints_kept = 1;  ///< The newest whole ones; at least 1.
  };

  /// Listens, and serves one rank of this process. Signals that ask for an end are its own from here on, in all threads
  /// that are started later.
  [[nodiscard]] static Result<std::unique_ptr<StandaloneAgent>> start(Setup setup);
  /// Waits until all that the rank has said is written; the rank has closed its link, or never connected.
  ~StandaloneAgent();
  StandaloneAgent(const StandaloneAgent&) = delete;
  StandaloneAgent& operator=(const StandaloneAgent&) = delete;

  /// Where the rank finds it: SGD_LINK.
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  StandaloneAgent() = default;
  void run();
  [[nodiscard]] bool accept_rank();
  [[nodiscard]] bool read_rank();
  void handle(const link::FromWorker& message);
  void answer(const link::ToWorker& message);
  void assign();
  void remove_old_checkpoints();
  void on_signal();

  Setup setup_;
  std::string folder_;
  std::string path_;
  UniqueFd listener_;
  UniqueFd signals_;
  UniqueFd wakeup_;  ///< An eventfd: the rank is done.
  UniqueFd rank_;
  std::string input_;
  int signals_seen_ = 0;
  std::thread thread_;
};

}  // namespace sgd::worker
