#pragma once
// A keeper that no run has yet: it holds a fork server ready, until whoever started it hands it to a run.
//
//   Prepare ──> fork server imports ──> Ready ... Adopt, 4 descriptors ──> fork server looks again ──> Ready
//                                                                                └──> a Keeper, with the run's agent
//
// Whoever holds it can only hand it over or let it go: when the link closes, all of it ends.

#include <optional>
#include <string>
#include <vector>

#include "common/messages/frame.hpp"
#include "common/messages/keeper.hpp"
#include "common/messages/warm.hpp"
#include "launcher/keeper/fork_server_process.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::keeper {

/// What a keeper has from before its run.
struct PreparedForkServer {
  ForkServerProcess process;
  StartForkServer request;  ///< To which it is the answer.
};

class Spare {
 public:
  struct Adopted {
    process::UniqueFd agent;
    PreparedForkServer server;
  };

  explicit Spare(process::UniqueFd holder) : holder_(std::move(holder)) {}
  /// Until a run takes it. Nothing: it is of no use any more, and what it had started is dead.
  [[nodiscard]] std::optional<Adopted> wait();

 private:
  enum class State { kNew, kPreparing, kReady, kAdopting, kAdopted, kUseless };

  [[nodiscard]] int timeout_ms() const;
  void read_holder();
  void take(const warm::Prepare& prepare);
  void take(const warm::Adopt& adopt);
  [[nodiscard]] Status become(const warm::Setting& setting);
  void read_fork_server();
  void answer(const fork_server::Prepared& prepared);
  void say(const std::string& reason);

  process::UniqueFd holder_;
  FrameReader reader_;
  std::vector<process::UniqueFd> descriptors_;  ///< Of Adopt.
  std::optional<ForkServerProcess> server_;
  StartForkServer request_;
  TimePoint deadline_{};
  State state_ = State::kNew;
};

}  // namespace sgd::keeper
